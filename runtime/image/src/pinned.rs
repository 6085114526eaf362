//! Images needed by the node however full the disk is. A kubelet never clears images reported as pinned. Owns
//! the patterns of their names; removes nothing and prevents no removal.

use crate::error::ImageError;
use crate::name::Name;

/// Patterns of names of pinned images.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Pinned {
    patterns: Vec<Pattern>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Pattern {
    /// A name in normal form.
    Name(String),
    /// The beginning of names in normal form.
    Beginning(String),
}

impl Pinned {
    /// Reads names in the form accepted by a pull. A trailing `*` matches any end. The part before it must
    /// begin a full name, with its registry.
    ///
    /// # Errors
    /// [`ImageError::Name`] for the first invalid name.
    pub fn parse(names: &[String]) -> Result<Pinned, ImageError> {
        let pattern = |name: &String| {
            let Some(beginning) = name.strip_suffix('*') else {
                return Name::parse(name).map(|name| Pattern::Name(name.whole()));
            };
            if beginning.contains('*') || !beginning.contains('/') {
                let reason =
                    "before a * there is the beginning of a whole name, with its registry".to_owned();
                return Err(ImageError::Name { name: name.clone(), reason });
            }
            Ok(Pattern::Beginning(beginning.to_owned()))
        };
        Ok(Pinned { patterns: names.iter().map(pattern).collect::<Result<_, _>>()? })
    }

    /// Returns true if one of an image's names is pinned.
    pub(crate) fn has<'a>(&self, mut names: impl Iterator<Item = &'a String>) -> bool {
        names.any(|name| {
            self.patterns.iter().any(|pattern| match pattern {
                Pattern::Name(whole) => name == whole,
                Pattern::Beginning(beginning) => name.starts_with(beginning),
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pins(pattern: &str, name: &str) -> bool {
        Pinned::parse(&[pattern.to_owned()]).unwrap().has([name.to_owned()].iter())
    }

    #[test]
    fn names_are_those_of_pulls_and_a_star_is_any_end() {
        assert!(pins("busybox", "docker.io/library/busybox:latest"));
        assert!(!pins("busybox", "docker.io/library/busybox:1"));
        assert!(pins("registry.k8s.io/pause:*", "registry.k8s.io/pause:3.10"));
        assert!(!pins("registry.k8s.io/pause:*", "registry.k8s.io/pause-other:3.10"));
        assert!(!Pinned::default().has(["r/x:1".to_owned()].iter()));
    }

    #[test]
    fn patterns_that_could_mean_anything_are_refused() {
        for wrong in ["*", "busybox*", "a/*/b*", "Not A Name", ""] {
            assert!(Pinned::parse(&[wrong.to_owned()]).is_err(), "{wrong:?}");
        }
    }
}
