//! One attempt to escape.

use crate::hand::{Hand, Tried};
use crate::node::Node;
use crate::victim::Role;

/// One attempt.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Attempt {
    pub(crate) name: &'static str,
    pub(crate) roles: &'static [Role],
    /// Whether a success changes the attacker's own process.
    pub(crate) changes: bool,
    /// Succeeds if the attacker reached what he wanted.
    pub(crate) run: fn(&mut Hand, &Node) -> Tried,
}

pub(crate) const BOTH: &[Role] = &Role::ALL;
pub(crate) const SHARE: &[Role] = &[Role::Share];
pub(crate) const VCPU: &[Role] = &[Role::Vcpu];

/// An attempt that leaves the process as it was.
pub(crate) const fn attempt(
    name: &'static str,
    roles: &'static [Role],
    run: fn(&mut Hand, &Node) -> Tried,
) -> Attempt {
    Attempt { name, roles, changes: false, run }
}

/// An attempt that changes the process.
pub(crate) const fn change(
    name: &'static str,
    roles: &'static [Role],
    run: fn(&mut Hand, &Node) -> Tried,
) -> Attempt {
    Attempt { name, roles, changes: true, run }
}
