//! Ids in requests.

use crate::error::Failure;

/// Refuses an empty id. A missing pod or container is no error for a stop or a removal, but an empty id is a
/// mistake: of a script whose variable is empty, for one.
pub(crate) fn given(field: &'static str, id: &str) -> Result<(), Failure> {
    if id.is_empty() { Err(Failure::invalid(format!("{field} is empty"))) } else { Ok(()) }
}
