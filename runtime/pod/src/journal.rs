//! The journal of a change: its steps in the order of their beginnings, undone in reverse.
//!
//! The caller notes each step before it begins, because a failed step may be partly done. If a later step
//! fails, the journal is drained. A step's undo may be repeated, and works even if the step was never begun.

use async_trait::async_trait;

use crate::error::PodError;

/// Undoable steps.
#[derive(Debug)]
pub(crate) struct Journal<S>(Vec<S>);

/// The ability to undo a step.
#[async_trait]
pub(crate) trait Undo<S> {
    async fn undo(&mut self, step: S) -> Result<(), PodError>;
}

impl<S> Journal<S> {
    pub(crate) fn new() -> Journal<S> {
        Journal(Vec::new())
    }

    /// Notes a step about to begin.
    pub(crate) fn note(&mut self, step: S) {
        self.0.push(step);
    }

    /// Undoes all steps, the last one first, and returns the failures. A failure does not prevent the other
    /// undos.
    pub(crate) async fn drain(self, undoer: &mut impl Undo<S>) -> Vec<PodError> {
        let mut left = Vec::new();
        for step in self.0.into_iter().rev() {
            if let Err(error) = undoer.undo(step).await {
                left.push(error);
            }
        }
        left
    }

    /// Undoes the steps, the last one first, up to the first failure. Earlier steps stay as they are, for a
    /// later retry.
    pub(crate) async fn drain_until_failure(self, undoer: &mut impl Undo<S>) -> Result<(), PodError> {
        for step in self.0.into_iter().rev() {
            undoer.undo(step).await?;
        }
        Ok(())
    }
}

impl<S, const N: usize> From<[S; N]> for Journal<S> {
    /// The journal of a completed change, or of one with unknown progress.
    fn from(steps: [S; N]) -> Journal<S> {
        Journal(steps.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Default)]
    struct Undone(Vec<u32>);

    #[async_trait]
    impl Undo<u32> for Undone {
        async fn undo(&mut self, step: u32) -> Result<(), PodError> {
            self.0.push(step);
            if step == 2 { Err(PodError::internal("step 2")) } else { Ok(()) }
        }
    }

    #[tokio::test]
    async fn steps_are_undone_in_reverse_and_a_failure_keeps_no_other_from_being_tried() {
        let mut undone = Undone::default();
        let left = Journal::from([1, 2, 3]).drain(&mut undone).await;
        assert_eq!(undone.0, [3, 2, 1]);
        assert_eq!(left.iter().map(PodError::to_string).collect::<Vec<_>>(), ["step 2"]);
    }

    #[tokio::test]
    async fn a_drain_until_failure_leaves_what_was_made_before_the_failed_step() {
        let mut undone = Undone::default();
        let mut journal = Journal::new();
        [1, 2, 3].into_iter().for_each(|step| journal.note(step));
        journal.drain_until_failure(&mut undone).await.unwrap_err();
        assert_eq!(undone.0, [3, 2]);
    }
}
