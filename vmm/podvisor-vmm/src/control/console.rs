//! Console: the console ring's content.

use proto_vmm::Response;

use super::{Answer, Control};

impl Control {
    pub(super) fn console(&mut self) -> Answer {
        Ok(Response::Console { text: self.vm()?.console().text() })
    }
}
