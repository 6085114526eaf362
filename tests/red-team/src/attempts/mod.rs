//! The attempts, by what they would reach. Each is what an attacker would do with calls of his choice, as far
//! as it takes to see an effect.

mod devices;
mod files;
mod kernel;
mod networks;
mod privileges;
mod processes;

use crate::attempt::Attempt;

/// All of them.
pub(crate) fn all() -> Vec<Attempt> {
    [processes::ALL, files::ALL, devices::ALL, networks::ALL, privileges::ALL, kernel::ALL].concat()
}
