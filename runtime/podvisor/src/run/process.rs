//! The process of `podvisor run`: its environment, user, working directory and entrypoint.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use proto_cri::v1;

/// Longest file of variables, in bytes. Linux takes no larger environment of a program by default.
const FILE_BYTES_MAX: u64 = 2 << 20;

/// Arguments for the process.
#[derive(Debug, clap::Args)]
pub(super) struct ProcessArgs {
    /// Variable for the container. Without a value, it is that of podvisor's own environment. May be
    /// repeated.
    #[arg(short, long, value_name = "NAME[=VALUE]", value_parser = parse_variable)]
    env: Vec<Variable>,
    /// File with a variable on each line. May be repeated; -e overrides it.
    #[arg(long, value_name = "FILE")]
    env_file: Vec<PathBuf>,
    /// User, and group if given, for the process. A group is a number.
    #[arg(short, long, value_name = "USER[:GROUP]", value_parser = parse_user)]
    user: Option<User>,
    /// Additional group of the process, as a number. May be repeated.
    #[arg(long, value_name = "GROUP", value_parser = clap::value_parser!(u32))]
    group_add: Vec<u32>,
    /// Working directory of the process.
    #[arg(short, long, value_name = "DIRECTORY", value_parser = parse_directory)]
    workdir: Option<String>,
    /// Program in place of the image's entrypoint.
    #[arg(long, value_name = "PROGRAM")]
    entrypoint: Option<String>,
    /// Run an init that reaps orphaned processes. The process is not PID 1 then.
    #[arg(long)]
    init: bool,
}

/// A variable. Without a value it is taken from this process.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Variable {
    name: String,
    value: Option<String>,
}

/// A user with a group, if one is given.
#[derive(Clone, Debug, PartialEq, Eq)]
struct User {
    who: Who,
    group: Option<u32>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Who {
    Id(u32),
    Name(String),
}

impl ProcessArgs {
    /// The container's variables: those of the files, then those of the command line. `own` is this process's
    /// environment.
    ///
    /// # Errors
    /// A file cannot be read, or a line of it is no variable.
    pub(super) fn envs(&self, own: impl Fn(&str) -> Option<OsString>) -> anyhow::Result<Vec<v1::KeyValue>> {
        let mut variables = Vec::new();
        for file in &self.env_file {
            variables.extend(read(file).with_context(|| format!("--env-file {}", file.display()))?);
        }
        variables.extend(self.env.iter().cloned());
        let with_value = |variable: Variable| {
            let value = variable.value.map(String::into_bytes);
            let value = value.or_else(|| own(&variable.name).map(OsString::into_vec))?;
            Some(v1::KeyValue { key: variable.name, value })
        };
        Ok(variables.into_iter().filter_map(with_value).collect())
    }

    /// The container's command and arguments, from those behind the image's name.
    ///
    /// # Errors
    /// The entrypoint was taken away, and nothing remains.
    pub(super) fn command(&self, given: &[String]) -> anyhow::Result<(Vec<String>, Vec<String>)> {
        match self.entrypoint.as_deref() {
            None => Ok((Vec::new(), given.to_vec())),
            Some("") if given.is_empty() => bail!("--entrypoint '' needs a command behind the image's name"),
            Some("") => Ok((given.to_vec(), Vec::new())),
            Some(program) => Ok((vec![program.to_owned()], given.to_vec())),
        }
    }

    pub(super) fn working_dir(&self) -> String {
        self.workdir.clone().unwrap_or_default()
    }

    /// The pod's PID namespace has the agent as PID 1, which reaps. A container's own namespace is the
    /// kubelet's default.
    pub(super) fn pid_namespace(&self) -> v1::NamespaceMode {
        if self.init { v1::NamespaceMode::Pod } else { v1::NamespaceMode::Container }
    }

    /// Sets user and groups.
    pub(super) fn apply_user(&self, context: &mut v1::LinuxContainerSecurityContext) {
        let id = |id: u32| v1::Int64Value { value: i64::from(id) };
        match self.user.as_ref().map(|user| &user.who) {
            Some(Who::Id(user)) => context.run_as_user = Some(id(*user)),
            Some(Who::Name(name)) => context.run_as_username.clone_from(name),
            None => {}
        }
        context.run_as_group = self.user.as_ref().and_then(|user| user.group).map(id);
        context.supplemental_groups = self.group_add.iter().copied().map(i64::from).collect();
    }
}

fn parse_variable(text: &str) -> Result<Variable, String> {
    let (name, value) = match text.split_once('=') {
        Some((name, value)) => (name, Some(value.to_owned())),
        None => (text, None),
    };
    if name.is_empty() {
        Err("a variable has a name".into())
    } else {
        Ok(Variable { name: name.into(), value })
    }
}

/// Reads a file as `docker run` does: a line is a variable, a comment or empty.
fn read(file: &Path) -> anyhow::Result<Vec<Variable>> {
    use std::io::Read;
    let mut text = String::new();
    std::fs::File::open(file)?.take(FILE_BYTES_MAX + 1).read_to_string(&mut text)?;
    if text.len() as u64 > FILE_BYTES_MAX {
        bail!("is larger than {} MiB", FILE_BYTES_MAX >> 20);
    }
    let mut variables = Vec::new();
    for (number, line) in text.trim_start_matches('\u{feff}').lines().enumerate() {
        let line = line.trim_start();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let variable = parse_variable(line).map_err(|why| anyhow::anyhow!("line {}: {why}", number + 1))?;
        if variable.name.contains(char::is_whitespace) {
            bail!("line {}: the name {:?} has a blank in it", number + 1, variable.name);
        }
        variables.push(variable);
    }
    Ok(variables)
}

fn parse_user(text: &str) -> Result<User, String> {
    let (who, group) = match text.split_once(':') {
        Some((who, group)) => (who, Some(group)),
        None => (text, None),
    };
    let group = group.map(|group| {
        let wrong = |_| format!("the group {group:?} is no number: CRI has no names of groups");
        group.parse::<u32>().map_err(wrong)
    });
    let who = match who.parse::<u32>() {
        _ if who.is_empty() => return Err("a user is a name or a number".into()),
        Ok(id) => Who::Id(id),
        Err(_) => Who::Name(who.to_owned()),
    };
    Ok(User { who, group: group.transpose()? })
}

fn parse_directory(text: &str) -> Result<String, String> {
    if text.starts_with('/') { Ok(text.to_owned()) } else { Err("it must begin with /".into()) }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::super::tests::parsed;
    use super::*;

    fn envs(arguments: &[&str]) -> Result<Vec<String>, String> {
        let own = |name: &str| (name == "HOME").then(|| "/root".into());
        let envs = parsed(arguments)?.process.envs(own).map_err(|error| format!("{error:#}"))?;
        Ok(envs
            .into_iter()
            .map(|one| format!("{}={}", one.key, String::from_utf8_lossy(&one.value)))
            .collect())
    }

    #[test]
    fn a_variable_without_a_value_is_ones_own_and_an_unset_one_is_not_passed() {
        let found = envs(&["-e", "A=1=2", "-e", "HOME", "--env", "NONE", "-e", "EMPTY=", "image"]);
        assert_eq!(found.unwrap(), ["A=1=2", "HOME=/root", "EMPTY="]);
        assert!(envs(&["-e", "=1", "image"]).unwrap_err().contains("has a name"));
    }

    #[test]
    fn a_file_of_variables_has_comments_and_comes_before_the_command_line() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        write!(file, "\u{feff}# comment\n\n A=one # two \nHOME\r\nNONE\nB='x'").unwrap();
        let path = file.path().to_str().unwrap().to_owned();
        let found = envs(&["-e", "A=3", "--env-file", &path, "image"]).unwrap();
        assert_eq!(found, ["A=one # two ", "HOME=/root", "B='x'", "A=3"]);
        write!(file, "\nA B=1\n").unwrap();
        let said = envs(&["--env-file", &path, "image"]).unwrap_err();
        assert!(said.contains(&path) && said.contains("line 7") && said.contains("\"A B\""), "{said}");
        let said = envs(&["--env-file", "/none/such", "image"]).unwrap_err();
        assert!(said.contains("--env-file /none/such: No such file"), "{said}");
        let said = envs(&["--env-file", "/dev/zero", "image"]).unwrap_err();
        assert!(said.contains("larger than 2 MiB"), "{said}");
    }

    #[test]
    fn a_user_is_a_name_or_a_number_and_a_group_a_number() {
        let context = |arguments: &[&str]| {
            let mut context = v1::LinuxContainerSecurityContext::default();
            parsed(arguments).map(|args| args.process.apply_user(&mut context)).map(|()| context)
        };
        let found = context(&["-u", "1000:2000", "--group-add", "7", "image"]).unwrap();
        assert_eq!(found.run_as_user.unwrap().value, 1000);
        assert_eq!((found.run_as_group.unwrap().value, found.supplemental_groups), (2000, vec![7]));
        let found = context(&["-u", "nobody", "image"]).unwrap();
        assert_eq!((found.run_as_username.as_str(), found.run_as_user), ("nobody", None));
        let said = context(&["-u", "nobody:nogroup", "image"]).unwrap_err();
        assert!(said.contains("no names of groups"), "{said}");
        assert!(context(&["--user", ":7", "image"]).is_err());
    }

    #[test]
    fn an_entrypoint_takes_the_images_place_and_an_empty_one_takes_it_away() {
        let command = |arguments: &[&str]| {
            let args = parsed(arguments).unwrap();
            args.process.command(&args.command).map_err(|error| error.to_string())
        };
        let words = |words: &[&str]| words.iter().map(|&word| word.to_owned()).collect::<Vec<_>>();
        assert_eq!(command(&["image", "a", "-b"]).unwrap(), (words(&[]), words(&["a", "-b"])));
        let found = command(&["--entrypoint", "sh", "image", "-c", "x"]).unwrap();
        assert_eq!(found, (words(&["sh"]), words(&["-c", "x"])));
        assert_eq!(command(&["--entrypoint", "", "image", "ls"]).unwrap(), (words(&["ls"]), words(&[])));
        assert!(command(&["--entrypoint", "", "image"]).unwrap_err().contains("needs a command"));
    }

    #[test]
    fn a_working_directory_is_absolute() {
        assert_eq!(parsed(&["-w", "/srv", "image"]).unwrap().process.working_dir(), "/srv");
        assert!(parsed(&["-w", "srv", "image"]).unwrap_err().contains("begin with /"));
    }
}
