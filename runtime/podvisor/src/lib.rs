//! The `podvisor` command: the daemon (`serve`), and commands for people. Each command has a file; this crate
//! only wires the other crates together. It is a library because it has two programs: the shipped one, and
//! one with fail points for tests.

#![forbid(unsafe_code)]
// They panic without a reader. `show::out` has others.
#![warn(clippy::print_stdout, clippy::print_stderr)]

mod attach;
mod bench;
mod check;
mod client;
mod complete;
mod completions;
mod config;
mod console;
mod cp;
mod daemon;
mod detach_keys;
mod device_plugin;
#[cfg(test)]
mod dist;
mod doctor;
mod events;
mod exec;
mod exit;
mod explain;
mod image;
mod inspect;
mod installation;
mod kill;
mod kubelet;
mod kvm;
mod listing;
mod log_follower;
mod logging;
mod logs;
mod man;
mod node;
mod one_by_one;
#[cfg(test)]
mod pages;
mod port_forward;
mod ps;
mod resolve;
mod rm;
mod run;
mod runtimeclass;
mod serve;
mod session;
mod show;
mod size;
mod sought;
mod starting;
mod state_lock;
mod stop;
mod terminal;
mod top;
mod wait;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};

use crate::show::escape;
use crate::show::out::{self, ReaderGone};

/// A container runtime for Kubernetes that gives every pod its own VM.
#[derive(Debug, Parser)]
#[command(version, about)]
struct Cli {
    /// Configuration file. By default /etc/podvisor/config.toml is read, if it exists.
    #[arg(long, global = true, value_name = "FILE")]
    config: Option<PathBuf>,

    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Serve the Container Runtime Interface on a unix socket.
    Serve(serve::Args),
    /// Run one container in its own VM, and return its exit code.
    Run(Box<run::Args>),
    /// List the node's pods with their containers.
    Ps(ps::Args),
    /// Stop pods or containers, and keep their records and logs.
    Stop(stop::Args),
    /// Kill containers at once.
    Kill(kill::Args),
    /// Wait for the ends of containers, and print their exit codes.
    Wait(wait::Args),
    /// Stop and remove pods.
    Rm(rm::Args),
    /// Print all information about pods and containers.
    Inspect(inspect::Args),
    /// Show CPU, memory and network usage of pods and containers.
    Top(top::Args),
    /// Follow events of pods and containers.
    Events(events::Args),
    /// List the node's images.
    Images(image::list::Args),
    /// Pull images, and show the progress of each layer.
    Pull(image::pull::Args),
    /// Inspect and import images.
    Image(image::Args),
    /// Remove images.
    Rmi(image::remove::Args),
    /// Run one more command in a running container, and return its exit code.
    Exec(exec::Args),
    /// Follow a running container's output. With -i, type to it.
    Attach(attach::Args),
    /// Print a container's output.
    Logs(logs::Args),
    /// Copy files between this host and a running container.
    Cp(cp::Args),
    /// Print the console of a pod's guest, also after the pod's end.
    Console(console::Args),
    /// Forward local ports to a pod's ports.
    PortForward(port_forward::Args),
    /// Explain an error: its meaning, and the remedy.
    Explain(explain::Args),
    /// Measure starts, commands, stops and memory of pods on this node.
    Bench(bench::Args),
    /// Compare the records of pods with the state of this node.
    Doctor(doctor::Args),
    /// List this node's capacity for VMs as a resource of the kubelet, until stopped.
    DevicePlugin(device_plugin::Args),
    /// Install Podvisor on a node of a cluster, or remove it.
    Node(node::Args),
    /// Report whether this host can run pods, and how to fix it if not.
    Check(check::Args),
    /// Print RuntimeClasses with an overhead measured on this node.
    Runtimeclass(runtimeclass::Args),
    /// Print the configuration in force with the origin of each value, an example, or the reference of all
    /// keys.
    Config(config::command::Args),
    /// Print a script for a shell to complete this program's commands, options, and names of pods and images.
    Completions(completions::Args),
    /// Write the manual pages.
    #[command(hide = true)]
    Man(man::Args),
    /// Print the version of this program's records, for packages to refuse a downgrade.
    #[command(hide = true)]
    Schema,
}

/// Exit status after wrong arguments, as clap has it.
const USAGE: i32 = 2;

/// Runs the command given by the process's arguments.
#[must_use]
pub fn run_command() -> ExitCode {
    // The daemon starts this program for a container with arguments of its own, none of the commands.
    let mut arguments = std::env::args_os().skip(1);
    if let (Some(first), Some(user), None) = (arguments.next(), arguments.next(), arguments.next())
        && first == runtime_connector::ARGUMENT
        && let Some(user) = user.to_str()
    {
        return runtime_connector::run(user);
    }
    complete::answer_a_shell(Cli::command);
    let cli = Cli::try_parse().unwrap_or_else(|error| {
        let Some(reason) = run::missing_flag(&error) else { error.exit() };
        out::complain(reason);
        std::process::exit(USAGE);
    });
    let outcome = run(cli).and_then(|code| match out::unwritten() {
        Some(error) if code == ExitCode::SUCCESS => Err(error),
        _ => Ok(code),
    });
    outcome.unwrap_or_else(|error| {
        if error.is::<ReaderGone>() {
            return ExitCode::SUCCESS;
        }
        // A daemon's error may quote a guest or an image.
        out::complain(escape::lines(&format!("{error:#}")));
        ExitCode::from(exit::PODVISOR_FAILED)
    })
}

fn run(cli: Cli) -> anyhow::Result<ExitCode> {
    let file = cli.config.as_deref();
    let loaded = || config::load(file);
    let config = || loaded().map(|loaded| loaded.config);
    match cli.command {
        Command::Serve(args) => serve::serve(loaded()?, file, args),
        Command::Run(args) => run::run(&config()?, file, &args),
        Command::Ps(args) => client::block_on(ps::ps(&config()?, args)),
        Command::Stop(args) => client::block_on(stop::stop(&config()?, args)),
        Command::Kill(args) => client::block_on(kill::kill(&config()?, args)),
        Command::Wait(args) => client::block_on(wait::wait(&config()?, args)),
        Command::Rm(args) => client::block_on(rm::remove(&config()?, args)),
        Command::Inspect(args) => client::block_on(inspect::inspect(&config()?, args)),
        Command::Top(args) => client::block_on(top::top(&config()?, args)),
        Command::Events(args) => client::block_on(events::events(&config()?, args)),
        Command::Images(args) => client::block_on(image::list::list(&config()?, args)),
        Command::Pull(args) => client::block_on(image::pull::pull(&config()?, args)),
        Command::Image(args) => client::block_on(image::image(&config()?, args)),
        Command::Rmi(args) => client::block_on(image::remove::remove(&config()?, args)),
        Command::Exec(args) => client::block_on(exec::exec(&config()?, args)),
        Command::Attach(args) => client::block_on(attach::attach(&config()?, args)),
        Command::Logs(args) => client::block_on(logs::logs(&config()?, args)),
        Command::Console(args) => client::block_on(console::console(&config()?, args)),
        Command::Cp(args) => client::block_on(cp::cp(&config()?, args)),
        Command::PortForward(args) => client::block_on(port_forward::port_forward(&config()?, args)),
        Command::Explain(args) => explain::explain(&args),
        Command::Bench(args) => client::block_on(bench::bench(&config()?, args)),
        Command::Doctor(args) => client::block_on(doctor::doctor(&config()?, args)),
        Command::DevicePlugin(args) => client::block_on(device_plugin::device_plugin(&loaded()?, args)),
        Command::Node(args) => node::node(|| Ok(config()?), args),
        Command::Check(args) => check::check(&loaded()?, &args),
        Command::Runtimeclass(args) => runtimeclass::runtimeclass(&config()?, file, &args),
        Command::Config(args) => client::block_on(config::command::print(file, args)),
        // Run while a package is built: the configuration there, if any, is for another build.
        Command::Completions(args) => completions::print(args),
        Command::Man(args) => man::write(&args, Cli::command()),
        Command::Schema => {
            out::print(&format!("{}\n", runtime_pod::SCHEMA_VERSION))?;
            Ok(ExitCode::SUCCESS)
        }
    }
}
