//! The descriptors of a request. Each may be used once.

use std::os::fd::OwnedFd;

use proto_vmm::{FdIndex, Refusal};

use super::answer::refusal;

pub(super) struct Descriptors(Vec<Option<OwnedFd>>);

impl Descriptors {
    pub(super) fn new(fds: Vec<OwnedFd>) -> Descriptors {
        Descriptors(fds.into_iter().map(Some).collect())
    }

    /// Takes the descriptor named by a message.
    pub(super) fn take(&mut self, index: FdIndex) -> Result<OwnedFd, Refusal> {
        self.0
            .get_mut(usize::from(index.0))
            .and_then(Option::take)
            .ok_or_else(|| refusal(format!("descriptor {} is missing or named twice", index.0)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_descriptor_is_given_once() {
        let (reader, _writer) = rustix::pipe::pipe().unwrap();
        let mut descriptors = Descriptors::new(vec![reader]);
        assert!(descriptors.take(FdIndex(0)).is_ok());
        assert!(descriptors.take(FdIndex(0)).is_err());
        assert!(descriptors.take(FdIndex(1)).is_err());
    }
}
