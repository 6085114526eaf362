//! Messages of a hostile VMM, chosen by a script.

use proto_vmm::{Event, ExitCounts, Message, Request, Response, StopReason, StopReport, VmStats};

use crate::script::Script;

/// Ports of the script's streams.
pub const PORTS: std::ops::Range<u32> = 1024..1032;

pub fn message(script: &Script) -> Message {
    match script.below(4) {
        0 => Message::Event(event(script)),
        1 => Message::Response { id: u64::from(script.u8()), result: Ok(response(script)) },
        2 => {
            let stream = Event::GuestStream { port: PORTS.start + script.below(8) as u32, number: None };
            Message::Event(stream)
        }
        _ => Message::Request { id: u64::from(script.u8()), request: Request::Console },
    }
}

pub fn response(script: &Script) -> Response {
    match script.below(12) {
        0 => Response::Hello { version: u32::from(script.u8()), release: script.text() },
        1 => Response::Booted,
        2 => Response::Plugged,
        3 => Response::Unplugged,
        4 => Response::Resizing,
        5 => Response::VcpusMade,
        6 => Response::LockWaitsInterrupted,
        7 => Response::GroupsShared,
        8 => Response::Stats(VmStats::default()),
        9 => Response::Console { text: script.text() },
        10 => Response::Saved,
        _ => Response::ShuttingDown,
    }
}

pub fn event(script: &Script) -> Event {
    match script.below(6) {
        0 | 1 => {
            let port = PORTS.start + script.below(8) as u32;
            Event::GuestStream { port, number: (script.below(4) > 0).then(|| u64::from(script.u32())) }
        }
        2 => Event::Resized,
        3 => Event::FullDisks { count: script.u32() },
        _ => {
            let reason = match script.below(6) {
                0 => StopReason::Requested,
                1 => StopReason::GuestPanic { message: script.text() },
                2 => StopReason::InternalError { suberror: script.u32(), instruction: script.bytes() },
                3 => StopReason::Vmm { message: script.text() },
                4 => StopReason::EntryFailed { hardware_reason: u64::from(script.u32()) },
                _ => StopReason::TripleFault,
            };
            let (console, exits) = (script.text(), ExitCounts::default());
            Event::Stopped(Box::new(StopReport { reason, registers: None, console, exits }))
        }
    }
}

/// Gives repeated streams their own numbers.
pub fn numbered(event: Event, add: u64) -> Event {
    match event {
        Event::GuestStream { port, number } => {
            Event::GuestStream { port, number: number.map(|number| number.wrapping_add(add)) }
        }
        event => event,
    }
}
