//! End-to-end tests: the real daemon, real KVM, a real registry, real CNI plugins. Each test has a
//! host of its own; `make test` runs them in the node.

#![forbid(unsafe_code)]
// In a test an unwrap is an assertion, in its functions too.
#![allow(clippy::unwrap_used)]

mod build_tools;
mod calls;
mod cdi;
mod clock;
mod commands;
mod console;
mod devices;
mod doctor;
mod events;
mod exits;
mod failures;
mod free_memory;
mod frozen;
mod guest_volumes;
mod host_sockets;
mod image_commands;
mod images;
mod installation;
mod isolation;
mod kernel_limits;
mod kernels;
mod lifecycle;
mod load;
mod logs;
mod many;
mod metrics;
mod mirrors;
mod monitoring;
mod mounts;
mod nested;
mod network;
mod node_image;
mod out_of_memory;
mod package;
mod people;
mod process;
mod programs;
mod receive_filter;
mod reload;
mod resources;
mod rpcs;
mod runtimeclass;
mod sealed_images;
mod security;
mod session;
mod sessions;
mod settings;
mod shared_layers;
mod state_disk;
mod stats;
mod steps;
mod stream_load;
mod stream_volume;
mod streaming_tls;
mod streams;
mod system;
mod templates;
mod tenants;
mod traces;
mod traps;
mod upgrade;
mod upstream;
mod user_namespaces;
mod verified_files;
mod versions;
mod volume_cache;
mod volume_disks;
mod volume_locks;
mod vsock;
mod walk;
mod writable_layers;
