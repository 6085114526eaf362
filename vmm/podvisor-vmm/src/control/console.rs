//! Console: the console ring's content.

use proto_vmm::Response;

use super::Control;
use super::answer::Answer;

impl Control {
    pub(super) fn console(&mut self) -> Answer {
        Ok(Response::Console { text: self.vm()?.console().text() })
    }
}
