//! Random cases over the grammar of images, mounts and containers. A seed stands for one case, whatever is
//! generated before it. Pure.

use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use serde_json::{Map, Value, json};

use crate::case::{Case, Image, Mount, Security};

/// Paths of entries, mounts and links. They are few, so they collide.
const PATHS: [&str; 14] = [
    "/a",
    "/a/b",
    "/a/b/c",
    "/link",
    "/link/d",
    "/etc/resolv.conf",
    "/etc/passwd",
    "/etc/new",
    "/run/x",
    "/var/run",
    "/var/run/x",
    "/dev/x",
    "/tmp/../a/e",
    "/home",
];
/// Those with a directory in the image below.
const BELOW: [&str; 5] = ["/a", "/link", "/etc/passwd", "/etc/new", "/home"];
const TARGETS: [&str; 9] =
    ["/a", "a/b", "../../../../a", "/nothing", "../run/none/file", "/home", "/etc/passwd", ".", "/link"];
const USERS: [&str; 8] = ["", "0", "33", "www-data", "1000", "1000:2000", "www-data:users", "ghost"];
const DIRECTORIES: [&str; 7] = ["", "/", "/a", "/made/deep", "/link", "/etc/../a", "/root"];
const VARIABLES: [&str; 7] = ["A=1", "B=two words", "A=2", "HOME=/x", "EMPTY=", "PATH=/bin:/a", "Z=a=b"];
const CAPABILITIES: [&str; 6] = ["ALL", "NET_ADMIN", "SYS_ADMIN", "CHOWN", "MKNOD", "SETUID"];

/// The case of a seed.
pub(crate) fn case(seed: u64) -> Case {
    let mut random = StdRng::seed_from_u64(seed);
    let mut case = Case {
        name: format!("seed_{seed}"),
        image: image(&mut random),
        env: some(&mut random, &VARIABLES, 3),
        cwd: pick(&mut random, &DIRECTORIES),
        security: security(&mut random),
        tty: random.random_ratio(1, 12),
        ..Case::default()
    };
    for _ in 0..random.random_range(0..4) {
        case.mounts.push(mount(&mut random));
    }
    case.sh = Some(probe());
    if random.random_ratio(1, 3) {
        case.exec = vec![probe()];
        case.sh = None;
    }
    case
}

/// A container's output about itself. Each line is the same in every run.
fn probe() -> String {
    let paths = PATHS.join(" ");
    format!(
        "id; pwd; env | grep -v ^HOSTNAME= | sort; grep -E '^(Cap|NoNewPrivs|Seccomp:|Groups)' /proc/self/status; umask; \
         for p in {paths}; do stat -c '%n %F %a %u:%g' $p 2>/dev/null | sed 's/ empty//'; readlink $p; \
         (echo x >> $p) 2>/dev/null && echo appended $p; touch $p/new 2>/dev/null && echo made $p/new; done; \
         touch /new 2>/dev/null && echo made /new; ls /dev | wc -l"
    )
}

fn image(random: &mut StdRng) -> Image {
    let mut config = Map::new();
    let mut set = |key: &str, value: Value| config.insert(key.to_owned(), value);
    if random.random_ratio(1, 3) {
        set("User", json!(pick(random, &USERS)));
    }
    if random.random_ratio(1, 3) {
        set("WorkingDir", json!(pick(random, &DIRECTORIES)));
    }
    if random.random_ratio(1, 3) {
        let mut variables = vec!["PATH=/bin:/sbin".to_owned()];
        variables.extend(some(random, &VARIABLES, 2));
        set("Env", json!(variables));
    }
    if random.random_ratio(1, 6) {
        let path = pick(random, &PATHS);
        // The difference there is known: `a_volume_of_the_image_at_resolv_conf` of the table.
        if path != "/etc/resolv.conf" {
            set("Volumes", json!({ path: {} }));
        }
    }
    Image { config, tree: entries(random), ..Image::default() }
}

/// Entries of one layer. As in a layer packed from a file system, no path is there twice or below a
/// non-directory.
fn entries(random: &mut StdRng) -> Vec<String> {
    let mut made: Vec<(&str, bool)> = Vec::new();
    let mut entries = Vec::new();
    for _ in 0..random.random_range(0..4) {
        // A layer's paths have no dots.
        let plain: Vec<&str> = PATHS.into_iter().filter(|path| !path.contains("..")).collect();
        let path = plain.choose(random).copied().unwrap_or("/a");
        let (is_dir, entry) = match random.random_range(0..6) {
            0 => (true, format!("dir {path} 0755")),
            1 => (true, format!("dir {path} 0700")),
            // A line of users, wherever it is.
            2 => (false, format!("file {path} 0644 root:x:0:0::/of-image:/bin/sh")),
            // containerd makes the parent directory of a whiteout.
            3 if BELOW.contains(&path) => (false, format!("without {path}")),
            _ => (false, format!("link {path} {}", pick(random, &TARGETS))),
        };
        let is_below =
            |path: &str, dir: &str| path.strip_prefix(dir).is_some_and(|rest| rest.starts_with('/'));
        let clashes = |(other, other_is_dir): &(&str, bool)| {
            *other == path || is_below(path, other) && !other_is_dir || is_below(other, path) && !is_dir
        };
        // Name servers in the place of users: `resolv_conf_is_a_link_to_the_list_of_users` of the table.
        let is_known = entry == "link /etc/resolv.conf /etc/passwd";
        if !is_known && !made.iter().any(clashes) {
            made.push((path, is_dir));
            entries.push(entry);
        }
    }
    entries
}

fn mount(random: &mut StdRng) -> Mount {
    let is_file = random.random_ratio(1, 3);
    let trees =
        [vec![], vec!["dir /b 0755".to_owned()], vec!["link /b /a".into()], vec!["file /b 0600 x".into()]];
    Mount {
        to: pick(random, &PATHS),
        file: is_file.then(|| "root:x:0:0::/mounted:/bin/sh\n".to_owned()),
        tree: if is_file { Vec::new() } else { trees.choose(random).cloned().unwrap_or_default() },
        missing: !is_file && random.random_ratio(1, 8),
        read_only: random.random_ratio(1, 3),
        ..Mount::default()
    }
}

fn security(random: &mut StdRng) -> Security {
    let mut security = Security { read_only: random.random_ratio(1, 5), ..Security::default() };
    if random.random_ratio(1, 3) {
        security.uid = [0, 33, 1000].choose(random).copied();
        security.gid = random.random_ratio(1, 2).then_some(2000);
    }
    if random.random_ratio(1, 4) {
        security.groups = vec![10, 33];
    }
    if random.random_ratio(1, 4) {
        security.add = some(random, &CAPABILITIES, 2);
        security.drop = some(random, &CAPABILITIES, 2);
    }
    security.no_new_privs = random.random_ratio(1, 5);
    if random.random_ratio(1, 3) {
        security.seccomp = "default".into();
    }
    security
}

fn pick(random: &mut StdRng, texts: &[&str]) -> String {
    texts.choose(random).copied().unwrap_or_default().to_owned()
}

fn some(random: &mut StdRng, texts: &[&str], most: usize) -> Vec<String> {
    (0..random.random_range(0..=most)).map(|_| pick(random, texts)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree;

    #[test]
    fn a_seed_is_one_case_in_the_form_of_cases() {
        for seed in 0..300 {
            let generated = case(seed);
            assert_eq!(generated, case(seed));
            tree::layer(&generated.image.tree).unwrap();
            let text = toml::to_string(&generated).unwrap();
            assert_eq!(toml::from_str::<Case>(&text).unwrap(), generated, "{text}");
        }
    }
}
