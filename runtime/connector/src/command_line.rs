//! How the daemon's program becomes a connector: the first argument selects it, the second names its user.
//! Pure.

use std::fmt;

/// First argument of the program in its role as a connector; the second one is a user.
pub const ARGUMENT: &str = "connector";

/// A user of the node, with its groups.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnectorUser {
    /// User id.
    pub uid: u32,
    /// Group id.
    pub gid: u32,
    /// Further groups, in any order.
    pub groups: Vec<u32>,
}

/// The form of a user on a connector's command line: `1000:100:27,44`.
impl fmt::Display for ConnectorUser {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let groups: Vec<String> = self.groups.iter().map(u32::to_string).collect();
        write!(f, "{}:{}:{}", self.uid, self.gid, groups.join(","))
    }
}

impl ConnectorUser {
    /// The user of this text.
    pub(crate) fn parse(text: &str) -> Option<ConnectorUser> {
        let mut parts = text.splitn(3, ':');
        let mut number = || parts.next()?.parse().ok();
        let (uid, gid) = (number()?, number()?);
        let groups = parts.next()?.split(',').filter(|group| !group.is_empty());
        let groups = groups.map(|group| group.parse().ok()).collect::<Option<_>>()?;
        Some(ConnectorUser { uid, gid, groups })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_is_read_as_it_was_written() {
        for (groups, text) in [(vec![], "1000:100:"), (vec![27, 44], "1000:100:27,44")] {
            let user = ConnectorUser { uid: 1000, gid: 100, groups };
            assert_eq!(user.to_string(), text);
            assert_eq!(ConnectorUser::parse(text), Some(user));
        }
        for text in ["", "1", "1:2", "a:2:", "1:2:x", "-1:2:", "1:2:3:4"] {
            assert_eq!(ConnectorUser::parse(text), None, "{text}");
        }
    }
}
