//! The context of a trace in the headers of W3C's Trace Context (level 2). Pure. A malformed `traceparent`
//! counts as none. A malformed or overlong `tracestate` alone is dropped (sections 3.2 and 3.3).

use std::str::FromStr;

use opentelemetry::trace::{SpanContext, SpanId, TraceFlags, TraceId, TraceState};

/// The header with the ids.
pub(crate) const TRACEPARENT: &str = "traceparent";

/// The header with vendors' additions.
pub(crate) const TRACESTATE: &str = "tracestate";

/// Length of a `traceparent` of version 00, in bytes: `00-<32>-<16>-<2>`.
const VERSION_00_BYTES: usize = 55;

/// Longest accepted `traceparent`, in bytes. Later versions may append to it, but hardly kilobytes.
const TRACEPARENT_BYTES_MAX: usize = 256;

/// Longest `tracestate` passed on, in bytes: the required minimum (section 3.3.1.5).
const TRACESTATE_BYTES_MAX: usize = 512;

/// Most members of a `tracestate` (section 3.3.1.1).
const TRACESTATE_MEMBERS_MAX: usize = 32;

/// Reads the caller's context.
pub(crate) fn parse(traceparent: &str, tracestate: &str) -> Option<SpanContext> {
    if traceparent.len() > TRACEPARENT_BYTES_MAX || !traceparent.is_ascii() {
        return None;
    }
    let (known, rest) = traceparent.split_at_checked(VERSION_00_BYTES)?;
    let mut parts = known.split('-');
    let mut part =
        |digits: usize| parts.next().filter(|part| part.len() == digits && part.bytes().all(is_digit));
    let (version, trace, span, flags) = (part(2)?, part(32)?, part(16)?, part(2)?);
    let whole = match version {
        "ff" => false,
        "00" => rest.is_empty(),
        _ => rest.is_empty() || rest.starts_with('-'),
    };
    if !whole {
        return None;
    }
    let trace = TraceId::from_hex(trace).ok()?;
    let span = SpanId::from_hex(span).ok()?;
    // Of the flags this version knows one.
    let flags = TraceFlags::new(u8::from_str_radix(flags, 16).ok()?) & TraceFlags::SAMPLED;
    let context = SpanContext::new(trace, span, flags, true, state(tracestate));
    // An id of zeros is invalid.
    context.is_valid().then_some(context)
}

/// Writes a context: both headers, the second one empty if there is no state.
pub(crate) fn write(context: &SpanContext) -> (String, String) {
    let (trace, span) = (context.trace_id(), context.span_id());
    let flags = context.trace_flags() & TraceFlags::SAMPLED;
    (format!("00-{trace}-{span}-{flags:02x}"), context.trace_state().header())
}

/// Lower case alone (section 3.2.2).
fn is_digit(byte: u8) -> bool {
    byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte)
}

fn state(text: &str) -> TraceState {
    let members: Vec<&str> = text.split(',').map(str::trim).filter(|member| !member.is_empty()).collect();
    let text = members.join(",");
    let is_bounded = text.len() <= TRACESTATE_BYTES_MAX && members.len() <= TRACESTATE_MEMBERS_MAX;
    if text.is_empty() || !is_bounded || !members.iter().all(|member| is_member(member)) {
        return TraceState::default();
    }
    TraceState::from_str(&text).unwrap_or_default()
}

/// A key of lower case with its value (section 3.3.1.3).
fn is_member(member: &str) -> bool {
    let Some((key, value)) = member.split_once('=') else { return false };
    let is_first = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let is_key = |byte: &u8| is_first(byte) || b"_-*/@".contains(byte);
    let is_value = |byte: &u8| (b' '..=b'~').contains(byte) && *byte != b'=';
    key.as_bytes().first().is_some_and(is_first)
        && key.as_bytes().iter().all(is_key)
        && !value.is_empty()
        && value.as_bytes().iter().all(is_value)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
    const SPAN: &str = "00f067aa0ba902b7";

    fn parent(version: &str, flags: &str, rest: &str) -> String {
        format!("{version}-{TRACE}-{SPAN}-{flags}{rest}")
    }

    #[test]
    fn a_callers_context_is_read_and_written_as_it_came() {
        for flags in ["00", "01"] {
            let context = parse(&parent("00", flags, ""), "vendor=a,other=b").unwrap();
            assert_eq!(context.trace_id().to_string(), TRACE);
            assert_eq!(context.span_id().to_string(), SPAN);
            assert!(context.is_remote());
            assert_eq!(context.is_sampled(), flags == "01");
            assert_eq!(write(&context), (parent("00", flags, ""), "vendor=a,other=b".to_owned()));
        }
    }

    #[test]
    fn flags_that_nobody_knows_are_not_passed_on() {
        let context = parse(&parent("00", "ff", ""), "").unwrap();
        assert_eq!(write(&context).0, parent("00", "01", ""));
    }

    #[test]
    fn a_later_version_is_read_as_far_as_it_is_known() {
        for rest in ["", "-", "-what-comes-later"] {
            let context = parse(&parent("cc", "01", rest), "").unwrap();
            assert_eq!(write(&context).0, parent("00", "01", ""), "{rest}");
        }
        assert!(parse(&parent("cc", "01", ".later"), "").is_none());
        assert!(parse(&parent("cc", "01", &"-x".repeat(200)), "").is_none());
    }

    #[test]
    fn a_malformed_parent_is_none() {
        let zeros = |digits| "0".repeat(digits);
        for wrong in [
            String::new(),
            "-".repeat(55),
            "00".to_owned(),
            parent("ff", "01", ""),
            parent("0", "001", ""),
            parent("00", "01", "-"),
            parent("00", "01", "-more"),
            parent("00", "1", ""),
            parent("00", "+1", ""),
            parent("00", "0g", ""),
            parent(" 0", "01", ""),
            parent("00", "01", "").to_uppercase(),
            format!("00-{}-{SPAN}-01", zeros(32)),
            format!("00-{TRACE}-{}-01", zeros(16)),
            format!("00-{TRACE}{SPAN}--01"),
            format!("00_{TRACE}_{SPAN}_01"),
            format!("00-{TRACE}-{SPAN}é-1"),
        ] {
            assert!(parse(&wrong, "").is_none(), "{wrong}");
        }
    }

    #[test]
    fn a_state_that_is_malformed_or_too_long_is_dropped_and_the_parent_stays() {
        let long = format!("vendor={}", "x".repeat(600));
        let many = (0..33).map(|number| format!("v{number}=a")).collect::<Vec<_>>().join(",");
        for wrong in ["nothing", "=a", "a=", "a=b=c", "UPPER=a", "a=1,b", "a=\u{7f}", &long, &many] {
            let context = parse(&parent("00", "01", ""), wrong).unwrap();
            assert_eq!(context.trace_state().header(), "", "{wrong}");
        }
        let spaced = parse(&parent("00", "01", ""), " t1@v=a b , ,v2=c\t").unwrap();
        assert_eq!(spaced.trace_state().header(), "t1@v=a b,v2=c");
    }

    proptest::proptest! {
        #[test]
        fn whatever_is_read_reads_the_same_once_it_is_written(
            text in "[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}(-.{0,20})?(\n([a-z]{1,3}=[ -~]{1,5},? ?){0,5})?|.{0,80}"
        ) {
            crate::fuzz::headers(&text);
        }
    }
}
