//! A seccomp profile's file on the node. The path comes from the caller, who may read the node's files
//! anyway. It may lead to anything, so only a regular file of bounded length is read.

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::OpenOptionsExt;
use std::time::Duration;

use runtime_blocking::Pool;
use runtime_spec::{SECCOMP_PROFILE_BYTES_MAX, SeccompProfile};
use rustix::fs::OFlags;

use crate::blocking::blocking_within;
use crate::error::{PodError, PodErrorKind};

/// How long reading the file may take.
const READ_WITHIN: Duration = Duration::from_secs(30);

/// Reads and parses the profile at `path`, on a thread of the pool.
pub(crate) async fn read(pool: &Pool, path: &str) -> Result<SeccompProfile, PodError> {
    let invalid = || {
        let text = format!("security_context.seccomp: the profile {path}");
        PodError::new(PodErrorKind::InvalidArgument, text)
    };
    let owned = path.to_owned();
    let reading = move || Ok::<_, std::convert::Infallible>(read_bounded(&owned));
    let doing = format!("reading the seccomp profile {path}");
    let read = blocking_within(READ_WITHIN, pool, &doing, reading).await?;
    let text = read.map_err(|error| invalid().because(error))?;
    SeccompProfile::parse(&text).map_err(|error| invalid().because(error))
}

fn read_bounded(path: &str) -> std::io::Result<Vec<u8>> {
    // Opening a pipe must not wait for its writer.
    let flags = OFlags::NONBLOCK.bits().cast_signed();
    let file = File::options().read(true).custom_flags(flags).open(path)?;
    if !file.metadata()?.is_file() {
        return Err(std::io::Error::other("it is no regular file"));
    }
    let mut text = Vec::new();
    file.take(SECCOMP_PROFILE_BYTES_MAX + 1).read_to_end(&mut text)?;
    if text.len() as u64 > SECCOMP_PROFILE_BYTES_MAX {
        return Err(std::io::Error::other(format!("it is longer than {SECCOMP_PROFILE_BYTES_MAX} bytes")));
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn only_a_regular_file_of_bounded_length_is_read() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name).display().to_string();
        std::fs::write(path("good"), r#"{ "defaultAction": "SCMP_ACT_ALLOW" }"#).unwrap();
        let pool = Pool::new("profiles", 1);
        read(&pool, &path("good")).await.unwrap();
        std::fs::write(path("bad"), "{").unwrap();
        File::create(path("long")).unwrap().set_len(SECCOMP_PROFILE_BYTES_MAX + 1).unwrap();
        rustix::fs::mkfifoat(rustix::fs::CWD, path("pipe").as_str(), rustix::fs::Mode::RWXU).unwrap();
        for (name, why) in
            [("bad", "not valid"), ("long", "longer"), ("pipe", "regular"), ("none", "No such")]
        {
            let error = read(&pool, &path(name)).await.unwrap_err();
            assert_eq!(error.kind(), PodErrorKind::InvalidArgument);
            let text = error.chain();
            assert!(text.contains(name) && text.contains(why), "{text}");
        }
    }
}
