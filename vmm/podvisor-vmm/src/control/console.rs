//! Console: the console ring's content.

use vmm_api::Response;

use super::{Answer, Control};

impl Control {
    pub(super) fn console(&mut self) -> Answer {
        Ok(Response::Console { text: self.machine()?.console().text() })
    }
}
