//! The entry point for `tests/fuzz`: headers of any caller. Nothing else may call it.

use crate::context;

/// Parses both headers, from the two lines of the text. A parsed context must survive writing and parsing
/// again.
///
/// # Panics
/// If it does not.
pub fn headers(text: &str) -> bool {
    let (parent, state) = text.split_once('\n').unwrap_or((text, ""));
    let Some(context) = context::parse(parent, state) else { return false };
    let (parent, state) = context::write(&context);
    assert_eq!(context::parse(&parent, &state), Some(context), "{parent:?} {state:?}");
    true
}
