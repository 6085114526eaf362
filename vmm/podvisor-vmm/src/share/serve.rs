//! The share's own process, from its beginning to its end.

use std::error::Error;
use std::os::fd::AsFd as _;
use std::process::ExitCode;
use std::sync::Arc;

use vmm_vm::ShareServer;

use super::NAME;
use crate::error_chain::chain;
use crate::jail;

/// The exit status of a share that could not serve.
const FAILED: u8 = 1;

/// Serves the working directory until the VMM hangs up. Errors go to the VMM, because the process has no
/// other descriptor to report them to.
pub(crate) fn serve(volume_cache: Option<&str>) -> ExitCode {
    let Ok(control) = std::io::stdin().as_fd().try_clone_to_owned() else { return FAILED.into() };
    let server = Arc::new(ShareServer::new(control));
    match run(&server, volume_cache) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            server.say(&chain(error.as_ref()));
            FAILED.into()
        }
    }
}

fn run(server: &Arc<ShareServer>, volume_cache: Option<&str>) -> Result<(), Box<dyn Error>> {
    nix::sys::prctl::set_name(&std::ffi::CString::new(NAME)?)?;
    let last_words = server.clone();
    std::panic::set_hook(Box::new(move |panic| last_words.say(&format!("it panicked: {panic}"))));
    // The file server's library logs mistakes of guests without a bound.
    log::set_max_level(log::LevelFilter::Off);
    let volume_cache = volume_cache.ok_or("the name of the guest's cache is missing")?.parse()?;
    let share = jail::enter_as_share(volume_cache)?;
    Ok(server.run(share)?)
}
