//! The committed seeds of a target without a fuzzer, and random mixes of two of them. A test of the crate in
//! question runs them.

use std::path::Path;

/// Mixes beside the seeds.
const MIXES: usize = 400;

/// Bytes changed in one mix.
const CHANGES_MAX: usize = 12;

/// Runs all of them. A panic of any task ends the process.
pub fn run_all(target: &str, run: fn(&[u8])) {
    let shown = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        shown(panic);
        std::process::abort();
    }));
    let seeds = seeds(target);
    seeds.iter().for_each(|seed| run(seed));
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut random = |below: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        ((state >> 33) % below.max(1) as u64) as usize
    };
    for _ in 0..MIXES {
        let (one, other) = (random(seeds.len()), random(seeds.len()));
        let mut mix = [&seeds[one][..], &seeds[other]].concat();
        for _ in 0..random(CHANGES_MAX) {
            let at = random(mix.len());
            if let Some(byte) = mix.get_mut(at) {
                *byte = random(256) as u8;
            }
        }
        run(&mix);
    }
}

fn seeds(target: &str) -> Vec<Vec<u8>> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fuzz/corpus").join(target);
    let entries = std::fs::read_dir(&directory).expect("the target has seeds");
    let mut files: Vec<_> = entries.map(|entry| entry.expect("an entry").path()).collect();
    files.sort();
    assert!(!files.is_empty(), "{}", directory.display());
    files.into_iter().map(|path| std::fs::read(path).expect("a seed")).collect()
}
