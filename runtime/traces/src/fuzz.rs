//! The entry point for `tests/fuzz`: headers of whoever calls. Nothing else may call it.

use crate::context;

/// Parses both headers, from the two lines of the text. A context that was read is written so that it reads the same.
///
/// # Panics
/// When it does not.
pub fn headers(text: &str) -> bool {
    let (parent, state) = text.split_once('\n').unwrap_or((text, ""));
    let Some(context) = context::parse(parent, state) else { return false };
    let (parent, state) = context::write(&context);
    assert_eq!(context::parse(&parent, &state), Some(context), "{parent:?} {state:?}");
    true
}
