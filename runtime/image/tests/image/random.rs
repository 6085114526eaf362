//! Random images with every feature of archives, imported, mounted by the kernel and compared with the
//! contents of their layers. Needs root, a loop device and EROFS in the kernel. Prints a note and passes
//! without them.

use crate::archives::{import, layout};
use crate::look;
use crate::node::{Node, with_mount};
use tests_registry::random;

/// How many images are made; `make soak` makes more.
const SEEDS_VARIABLE: &str = "PODVISOR_IMAGE_SEEDS";
const SEEDS: u64 = 12;
/// One seed alone, to look at it again.
const SEED_VARIABLE: &str = "PODVISOR_IMAGE_SEED";

fn number(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok().filter(|text| !text.is_empty())?;
    Some(text.parse().unwrap_or_else(|_| panic!("{variable} is {text:?}, and no number")))
}

/// Prints the seed of a failing test.
struct Seed(u64);

impl Drop for Seed {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("seed {0}: {SEED_VARIABLE}={0} makes the same image again", self.0);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_random_image_is_what_its_layers_say_however_their_archives_are_written() {
    let seeds = match number(SEED_VARIABLE) {
        Some(seed) => seed..seed + 1,
        None => 0..number(SEEDS_VARIABLE).unwrap_or(SEEDS),
    };
    let (mut layers_made, mut names) = (0, 0);
    for seed in seeds.clone() {
        let shown = Seed(seed);
        let (layers, model) = random::image(seed);
        let node = Node::new();
        let images = import(&node, &layout(&layers, Some("r.example/random:1")).tar(), None).await.unwrap();
        with_mount(&node, &images[0], |root| look::shows(root, &model));
        (layers_made, names) = (layers_made + layers.len(), names + model.names.len());
        drop(shown);
    }
    eprintln!("{} images of {layers_made} layers, with {names} names", seeds.count());
}
