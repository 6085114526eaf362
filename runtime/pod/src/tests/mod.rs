//! Pods on a node with fakes for network, VMs, agents and images. A test can make each call of a backend
//! fail, and count the leftovers.

mod agent;
mod containers;
mod disks;
mod events;
mod exec;
mod found_again;
mod frozen_disk;
mod full_disk;
mod guest_clocks;
mod host_sockets;
mod ids;
mod leases;
mod mounts;
mod out_of_memory;
mod output;
mod plugins;
mod power_off;
mod process;
mod published;
mod reclaim;
mod recovery;
mod resources;
mod script;
mod spare_networks;
mod spare_vmms;
mod spares;
mod start;
mod state_disk;
mod stop;
mod stop_with_containers;
mod streams;
mod templates;
mod traces;
mod usage;
mod versions;
mod vm;
mod volume_disks;
mod volumes;
mod walk;
mod world;

pub(crate) use agent::Silence;
pub(crate) use script::{Fault, Script};
pub(crate) use state_disk::StateDisk;
pub(crate) use vm::FakeVm;
pub(crate) use world::{World, container, life, pod};
