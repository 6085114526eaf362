//! A container's user: a user string looked up in the image's passwd and group files.
//!
//! Pure. The files are hostile. A malformed line is skipped as if it were absent, and the caller bounds the
//! files' size ([`crate::image_file`]). Formats: passwd(5), group(5).

/// Largest user or group id. The kernel reserves -1 for "none", and ids above are refused elsewhere.
const ID_MAX: u32 = i32::MAX as u32;

/// Most supplementary groups, `NGROUPS_MAX` of `include/uapi/linux/limits.h`. More are cut.
const GROUPS_MAX: usize = 65536;

/// A user string, resolved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResolvedUser {
    /// User id.
    pub uid: u32,
    /// Primary group id.
    pub gid: u32,
    /// The primary group. With [`GroupsPolicy::Merge`] also each group with the user in its member list. Each
    /// once.
    pub groups: Vec<u32>,
}

/// Why a user string is not valid for this image.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum UserError {
    /// A name without an entry in passwd.
    #[error("user `{0}` is not in the image's /etc/passwd")]
    UnknownUser(String),
    /// A group name without an entry in the group file.
    #[error("group `{0}` is not in the image's /etc/group")]
    UnknownGroup(String),
    /// A number beyond the kernel's range.
    #[error("id {0} is beyond {ID_MAX}")]
    IdTooLarge(u64),
}

struct PasswdEntry<'a> {
    name: &'a str,
    uid: u32,
    gid: u32,
    home: &'a str,
}

struct GroupEntry<'a> {
    name: &'a str,
    gid: u32,
    members: &'a str,
}

/// Groups of a user in addition to the primary one and those of the pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GroupsPolicy {
    /// The user's groups from the image's group file.
    Merge,
    /// No others.
    Strict,
}

/// Resolves `""`, `"1000"`, `"1000:100"`, `"name"` or `"name:group"`.
///
/// A number needs no entry. Without a group in the string the primary group is the entry's, or 0.
pub fn resolve(
    user: &str,
    passwd: &str,
    group: &str,
    policy: GroupsPolicy,
) -> Result<ResolvedUser, UserError> {
    let (user, wanted_group) = match user.split_once(':') {
        Some((user, wanted)) => (user, Some(wanted).filter(|wanted| !wanted.is_empty())),
        None => (user, None),
    };
    let user = if user.is_empty() { "0" } else { user };
    let number = number(user)?;
    let entry = passwd_entries(passwd).find(|entry| match number {
        Some(uid) => entry.uid == uid,
        None => entry.name == user,
    });
    let uid = match (number, &entry) {
        (Some(uid), _) => uid,
        (None, Some(entry)) => entry.uid,
        (None, None) => return Err(UserError::UnknownUser(user.to_owned())),
    };
    let gid = match wanted_group {
        Some(wanted) => group_id(wanted, group)?,
        None => entry.as_ref().map_or(0, |entry| entry.gid),
    };
    let mut groups = vec![gid];
    if let (Some(entry), GroupsPolicy::Merge) = (&entry, policy) {
        let named = group_entries(group).filter(|g| g.members.split(',').any(|member| member == entry.name));
        for found in named.take(GROUPS_MAX - 1) {
            if !groups.contains(&found.gid) {
                groups.push(found.gid);
            }
        }
    }
    Ok(ResolvedUser { uid, gid, groups })
}

/// The user's home directory in passwd, or "/" for a user without an entry.
pub(crate) fn home(uid: u32, passwd: &str) -> &str {
    let home = passwd_entries(passwd).find(|entry| entry.uid == uid).map(|entry| entry.home);
    home.filter(|home| home.starts_with('/')).unwrap_or("/")
}

fn group_id(wanted: &str, group: &str) -> Result<u32, UserError> {
    if let Some(gid) = number(wanted)? {
        return Ok(gid);
    }
    group_entries(group)
        .find(|entry| entry.name == wanted)
        .map(|entry| entry.gid)
        .ok_or_else(|| UserError::UnknownGroup(wanted.to_owned()))
}

/// The id when `text` is all digits; a name otherwise.
fn number(text: &str) -> Result<Option<u32>, UserError> {
    if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Ok(None);
    }
    let number = text.parse::<u64>().map_err(|_| UserError::IdTooLarge(u64::MAX))?;
    match u32::try_from(number) {
        Ok(id) if id <= ID_MAX => Ok(Some(id)),
        _ => Err(UserError::IdTooLarge(number)),
    }
}

/// A line may end early, as in other runtimes. Missing fields are 0 or empty.
fn passwd_entries(text: &str) -> impl Iterator<Item = PasswdEntry<'_>> {
    text.lines().filter_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next().filter(|name| !name.is_empty())?;
        let _password = fields.next()?;
        let uid = entry_id(fields.next()?)?;
        let gid = fields.next().map_or(Some(0), entry_id)?;
        let _comment = fields.next();
        Some(PasswdEntry { name, uid, gid, home: fields.next().unwrap_or("") })
    })
}

fn group_entries(text: &str) -> impl Iterator<Item = GroupEntry<'_>> {
    text.lines().filter_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next().filter(|name| !name.is_empty())?;
        let _password = fields.next()?;
        let gid = entry_id(fields.next()?)?;
        Some(GroupEntry { name, gid, members: fields.next().unwrap_or("") })
    })
}

fn entry_id(field: &str) -> Option<u32> {
    field.parse().ok().filter(|id| *id <= ID_MAX)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const PASSWD: &str =
        "root:x:0:0:root:/root:/bin/sh\nweb:x:33:33::/srv/www:\nbroken line\nbad:x:a:b::/:\n";
    const GROUP: &str = "root:x:0:\nwww:x:33:web\ntape:x:26:root,web\nlog:x:4:web\n";

    fn merged(user: &str, passwd: &str, group: &str) -> Result<ResolvedUser, UserError> {
        resolve(user, passwd, group, GroupsPolicy::Merge)
    }

    #[test]
    fn a_strict_user_is_in_no_group_of_the_images_but_its_own() {
        let web = resolve("web", PASSWD, GROUP, GroupsPolicy::Strict).unwrap();
        assert_eq!((web.gid, web.groups.as_slice()), (33, &[33][..]));
        // Asking for a group by name is no membership.
        assert_eq!(resolve("web:tape", PASSWD, GROUP, GroupsPolicy::Strict).unwrap().groups, [26]);
    }

    #[test]
    fn an_empty_string_is_root() {
        let root = merged("", PASSWD, GROUP).unwrap();
        assert_eq!((root.uid, root.gid), (0, 0));
        assert_eq!(root.groups, [0, 26]);
    }

    #[test]
    fn a_home_is_the_entrys_or_the_root() {
        assert_eq!((home(0, PASSWD), home(33, PASSWD), home(1000, PASSWD)), ("/root", "/srv/www", "/"));
        assert_eq!(home(7, "odd:x:7:7::relative:/bin/sh\n"), "/");
        let short = merged("short", "short:x:7\n", "").unwrap();
        assert_eq!((short.uid, short.gid, home(7, "short:x:7\n")), (7, 0, "/"));
    }

    #[test]
    fn a_name_brings_its_groups() {
        let web = merged("web", PASSWD, GROUP).unwrap();
        assert_eq!((web.uid, web.gid), (33, 33));
        assert_eq!(web.groups, [33, 26, 4]);
    }

    #[test]
    fn a_number_needs_no_entry() {
        let user = merged("1000:100", "", "").unwrap();
        assert_eq!(user, ResolvedUser { uid: 1000, gid: 100, groups: vec![100] });
        assert_eq!(merged("1000", "", "").unwrap().gid, 0);
    }

    #[test]
    fn a_named_group_is_looked_up() {
        assert_eq!(merged("web:tape", PASSWD, GROUP).unwrap().gid, 26);
        assert_eq!(merged("web:none", PASSWD, GROUP), Err(UserError::UnknownGroup("none".into())));
    }

    #[test]
    fn an_unknown_name_is_refused() {
        assert_eq!(merged("nobody", PASSWD, GROUP), Err(UserError::UnknownUser("nobody".into())));
        assert_eq!(merged("bad", PASSWD, GROUP), Err(UserError::UnknownUser("bad".into())));
    }

    #[test]
    fn an_id_beyond_the_kernels_is_refused() {
        assert_eq!(merged("4294967295", "", ""), Err(UserError::IdTooLarge(4_294_967_295)));
        assert!(matches!(merged("99999999999999999999999", "", ""), Err(UserError::IdTooLarge(_))));
    }

    proptest! {
        #[test]
        fn no_file_and_no_string_upsets_it(user in ".{0,40}", passwd in ".{0,400}", group in ".{0,400}") {
            if let Ok(found) = merged(&user, &passwd, &group) {
                prop_assert!(found.uid <= ID_MAX && found.gid <= ID_MAX);
                prop_assert_eq!(found.groups[0], found.gid);
                prop_assert!(home(found.uid, &passwd).starts_with('/'));
            }
        }

        #[test]
        fn a_good_entry_is_found_among_noise(uid in 1u32..60000, gid in 1u32..60000, noise in "[a-z:0-9\n]{0,200}") {
            let passwd = format!("{noise}\nwanted:x:{uid}:{gid}::/home/w:/bin/sh\n");
            let found = merged("wanted", &passwd, "").unwrap();
            prop_assert_eq!((found.uid, found.gid), (uid, gid));
        }
    }
}
