//! `podvisor-agent`: PID 1 of the guest. Re-executed with other first arguments, it also runs the short-lived
//! processes outside PID 1. The agent trusts only the host.
//!
//! | argument | runs |
//! |---|---|
//! | none | the agent: [`boot`], then [`serve`] until the VM is closed |
//! | `template` | the agent of a template: [`boot`], then [`template`] until a clone is woken |
//! | `restored` | the agent of a clone: [`serve`] until the VM is closed |
//! | `container-init` | [`agent_container::builder`] |
//! | `pod-pid-namespace`, `pause` | [`pause`] |
//! | `pod-user-namespace` | [`user_namespace`] |
//! | `nft-table` | [`network`] |
//! | `remove-tree` | [`remove_tree`] |

#![forbid(unsafe_code)]

mod balloon;
mod boot;
mod clock;
mod compiled_filter;
mod configure;
mod console;
mod containers;
mod disk_volumes;
mod disks;
mod ext4_disk;
mod fair_server;
mod fetched_ahead;
mod host_listener;
mod host_sockets;
mod host_work;
mod images;
mod kernel_limits;
mod launcher;
mod lifecycle;
mod memory_protection;
mod memory_volumes;
mod network;
mod page_cache;
mod pause;
mod pause_end;
mod pod;
mod pod_files;
mod prepare;
mod proc_figures;
mod process;
mod processors;
mod published_volumes;
mod ready;
mod reaper;
mod remove_tree;
mod rpc;
mod scratch;
mod serve;
mod shared;
mod shared_places;
mod slot_users;
mod slots;
mod stream_server;
mod streams;
mod sysctl;
mod template;
mod usage;
mod user_namespace;
mod volume_part;

use std::process::ExitCode;

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let (first, second) = (arguments.next(), arguments.next());
    match (first.as_deref(), second.as_deref()) {
        // Outside a guest the boot would mount over the host's file systems.
        (None, None) if std::process::id() == 1 => agent(Life::Booted),
        (Some(proto_agent::TEMPLATE_ARGUMENT), None) if std::process::id() == 1 => agent(Life::Template),
        (Some(template::RESTORED_ARGUMENT), None) if std::process::id() == 1 => agent(Life::Restored),
        (None | Some(proto_agent::TEMPLATE_ARGUMENT | template::RESTORED_ARGUMENT), None) => {
            eprintln!("podvisor-agent: this is not PID 1, so this is no guest; nothing was done");
            ExitCode::from(2)
        }
        (Some(agent_container::launch::ARGUMENT), None) => code(agent_container::builder::run()),
        (Some(pause::NAMESPACE_ARGUMENT), None) => code(pause::make_namespace()),
        (Some(pause::PAUSE_ARGUMENT), None) => code(pause::run()),
        (Some(user_namespace::ARGUMENT), None) => code(user_namespace::run()),
        (Some(network::NFT_ARGUMENT), None) => code(network::make_nft_table_in_user_namespace()),
        (Some(remove_tree::ARGUMENT), Some(path)) => code(remove_tree::run(path)),
        _ => {
            eprintln!("podvisor-agent: unknown arguments; it is started by the guest's kernel");
            ExitCode::from(2)
        }
    }
}

/// Process name of the agent, visible to containers in the guest's PID namespace.
const NAME: &std::ffi::CStr = c"podvisor-agent";

/// How PID 1 was started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Life {
    /// The kernel started it, for a pod.
    Booted,
    /// The kernel started it, for a template.
    Template,
    /// The agent of a template executed itself again, in a clone.
    Restored,
}

/// Boots and serves. Returns only on failure. The end of PID 1 is a kernel panic, and the VMM reports it with
/// the console's last lines.
fn agent(life: Life) -> ExitCode {
    let entered = ready::monotonic_ns();
    // The kernel names a program after its path. For an agent executed again the path is `/proc/self/exe`.
    let _ = nix::sys::prctl::set_name(NAME);
    let booted = match life {
        Life::Restored => {
            boot::restored();
            Ok(())
        }
        Life::Booted | Life::Template => boot::run().map_err(chain),
    };
    let result = booted.and_then(|()| match life {
        Life::Template => template::run(entered).map_err(chain),
        _ => serve::run(entered, life == Life::Restored).map_err(chain),
    });
    match result {
        Ok(never) => match never {},
        Err(reason) => {
            boot::fatal(&reason);
            ExitCode::FAILURE
        }
    }
}

fn code(code: i32) -> ExitCode {
    ExitCode::from(u8::try_from(code).unwrap_or(1))
}

/// An error and its sources in one line.
fn chain(error: impl std::error::Error + 'static) -> String {
    agent_container::launch::Failure::from_error(&error).message
}
