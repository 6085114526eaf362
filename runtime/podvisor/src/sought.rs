//! Finds a pod or container by a name or by the beginning of an id. Pure.
//!
//! ```text
//!   whole id ─► name of pods ─► name of containers ─► beginning of ids    the first with a match counts
//!               (live ones before ended ones)                             several: an error with all of them
//! ```

use crate::listing::{Pod, State};
use crate::one_by_one::Subject as _;
use crate::show::units;

/// Candidates listed in an error.
const LISTED_MAX: usize = 10;

/// A pod or a container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Pod,
    Container,
}

impl Kind {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Kind::Pod => "pod",
            Kind::Container => "container",
        }
    }
}

/// A pod or container, with its names.
#[derive(Clone, Debug)]
pub(crate) struct Candidate {
    pub(crate) kind: Kind,
    pub(crate) id: String,
    /// NAMESPACE/POD, or NAMESPACE/POD/CONTAINER.
    pub(crate) path: String,
    /// The pod's or the container's own name.
    name: String,
    lives: bool,
}

impl Candidate {
    /// Returns true if this is its path, or the path's end: POD/CONTAINER.
    fn is_at(&self, sought: &str) -> bool {
        let before = self.path.strip_suffix(sought);
        before.is_some_and(|before| before.is_empty() || sought.contains('/') && before.ends_with('/'))
    }
}

/// The reason why there is no result.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum SoughtError {
    /// Nothing has this name or id.
    #[error("no pod and no container has the id or the name {0:?}")]
    Unknown(String),
    /// Several match.
    #[error("{sought:?} means several: {}", candidates.join(", "))]
    Ambiguous {
        /// The name or the beginning of an id.
        sought: String,
        /// Kind, id and names of each.
        candidates: Vec<String>,
    },
}

/// All candidates.
pub(crate) fn candidates(pods: &[Pod]) -> Vec<Candidate> {
    let of = |pod: &Pod| {
        let path = pod.path();
        let itself = Candidate {
            kind: Kind::Pod,
            id: pod.id.clone(),
            path: path.clone(),
            name: pod.name.clone(),
            lives: pod.ready,
        };
        let containers = pod.containers.iter().map(move |container| Candidate {
            kind: Kind::Container,
            id: container.id.clone(),
            path: format!("{path}/{}", container.name),
            name: container.name.clone(),
            lives: container.state != State::Exited,
        });
        std::iter::once(itself).chain(containers).collect::<Vec<_>>()
    };
    pods.iter().flat_map(of).collect()
}

/// Finds the pod or container.
pub(crate) fn find<'a>(all: &'a [Candidate], sought: &str) -> Result<&'a Candidate, SoughtError> {
    let named = |kind, lives| {
        move |one: &Candidate| {
            one.kind == kind && one.lives == lives && (one.name == sought || one.is_at(sought))
        }
    };
    let ways: [&dyn Fn(&Candidate) -> bool; 6] = [
        &|one| one.id == sought,
        &named(Kind::Pod, true),
        &named(Kind::Pod, false),
        &named(Kind::Container, true),
        &named(Kind::Container, false),
        &|one| one.id.starts_with(sought),
    ];
    // The empty string is no beginning of an id.
    for way in ways.iter().filter(|_| !sought.is_empty()) {
        let found: Vec<&Candidate> = all.iter().filter(|one| way(one)).collect();
        match found[..] {
            [] => {}
            [one] => return Ok(one),
            // Ended containers of one name in one pod, the oldest first: a kubelet keeps some.
            [first, .., last]
                if first.kind == Kind::Container && found.iter().all(|one| one.path == last.path) =>
            {
                return Ok(last);
            }
            _ => return Err(ambiguous(sought, &found)),
        }
    }
    Err(SoughtError::Unknown(sought.to_owned()))
}

fn ambiguous(sought: &str, found: &[&Candidate]) -> SoughtError {
    let shown = |one: &&Candidate| format!("{} {} ({})", one.kind.name(), units::short(&one.id), one.path);
    let mut candidates: Vec<String> = found.iter().take(LISTED_MAX).map(shown).collect();
    if found.len() > LISTED_MAX {
        candidates.push(format!("and {} more", found.len() - LISTED_MAX));
    }
    SoughtError::Ambiguous { sought: sought.to_owned(), candidates }
}

#[cfg(test)]
mod tests {
    use proto_cri::v1::ContainerState::{ContainerExited, ContainerRunning};

    use super::*;
    use crate::daemon::NodeStatus;
    use crate::listing::{listing, tests as made};

    fn all() -> Vec<Candidate> {
        let pods = vec![
            made::pod("ab10", "shop", "web", true),
            made::pod("ab20", "shop", "web", false),
            made::pod("cd10", "test", "db", true),
            made::pod("cd20", "shop", "db", true),
            made::pod("ee10", "shop", "old", false),
        ];
        let containers = vec![
            made::container("0a", "ab10", "app", ContainerRunning),
            made::container("0b", "ab10", "db", ContainerRunning),
            made::container("ab30", "ee10", "app", ContainerExited),
            made::container("0c", "cd10", "main", ContainerRunning),
            made::container("0d", "cd20", "main", ContainerRunning),
        ];
        candidates(&listing(pods, containers, &NodeStatus::default()))
    }

    #[test]
    fn one_is_meant_by_its_id_its_beginning_or_its_names() {
        let all = all();
        for (sought, id) in [
            ("cd10", "cd10"),
            ("cd1", "cd10"),
            ("old", "ee10"),
            ("shop/old", "ee10"),
            ("test/db", "cd10"),
            ("shop/web/db", "0b"),
            ("0c", "0c"),
        ] {
            assert_eq!(find(&all, sought).unwrap().id, id, "{sought}");
        }
    }

    #[test]
    fn what_lives_is_meant_before_what_has_ended() {
        let all = all();
        assert_eq!(find(&all, "web").unwrap().id, "ab10");
        assert_eq!(find(&all, "app").unwrap().id, "0a");
    }

    #[test]
    fn several_are_an_error_that_lists_them() {
        let all = all();
        let error = find(&all, "db").unwrap_err().to_string();
        assert_eq!(error, "\"db\" means several: pod cd20 (shop/db), pod cd10 (test/db)");
        let error = find(&all, "ab").unwrap_err().to_string();
        assert!(error.contains("pod ab10") && error.contains("container ab30 (shop/old/app)"), "{error}");
        assert!(find(&all, "main").unwrap_err().to_string().contains("test/db/main"));
        let many: Vec<_> = (0..30).map(|n| made::pod(&format!("ff{n}"), "a", "b", true)).collect();
        let error = find(&candidates(&listing(many, Vec::new(), &NodeStatus::default())), "ff").unwrap_err();
        assert!(error.to_string().ends_with("and 20 more"), "{error}");
    }

    #[test]
    fn nothing_is_meant_by_nothing_and_by_part_of_a_name() {
        for sought in ["", "we", "shop", "shop/", "/web", "0aa"] {
            assert_eq!(find(&all(), sought).unwrap_err(), SoughtError::Unknown(sought.into()));
        }
    }
}
