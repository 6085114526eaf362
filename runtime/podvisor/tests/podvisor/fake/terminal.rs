//! A terminal with a command's output, as a person would see it.

use std::io::Read;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use nix::pty::{Winsize, openpty};

/// Timeout of a test's waits. Far longer than anything takes.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// A process on a terminal, killed when the test ends.
pub(crate) struct OnTerminal {
    child: Child,
    written: mpsc::Receiver<Vec<u8>>,
    screen: String,
}

impl OnTerminal {
    /// Starts the command on a terminal of 24 rows and 100 columns.
    pub(crate) fn start(mut command: Command) -> OnTerminal {
        let size = Winsize { ws_row: 24, ws_col: 100, ws_xpixel: 0, ws_ypixel: 0 };
        let terminal = openpty(Some(&size), None).unwrap();
        let child = command.stdout(terminal.slave).stderr(Stdio::null()).spawn().unwrap();
        // The command holds the other end until it is dropped.
        drop(command);
        let (sender, written) = mpsc::channel();
        std::thread::spawn(move || {
            let mut master = std::fs::File::from(terminal.master);
            let mut chunk = [0; 4096];
            while let Ok(count @ 1..) = master.read(&mut chunk) {
                let _ = sender.send(chunk[..count].to_vec());
            }
        });
        OnTerminal { child, written, screen: String::new() }
    }

    /// Waits until the screen has a text it did not have at the previous call.
    pub(crate) fn until(&mut self, text: &str) -> String {
        let limit = Instant::now() + PATIENCE;
        loop {
            if let Some(at) = self.screen.find(text) {
                let rest = self.screen.split_off(at + text.len());
                return std::mem::replace(&mut self.screen, rest);
            }
            let left = limit.saturating_duration_since(Instant::now());
            let more = self.written.recv_timeout(left);
            let more = more.unwrap_or_else(|_| panic!("{text:?} is not on the screen: {:?}", self.screen));
            self.screen += &String::from_utf8_lossy(&more);
        }
    }
}

impl Drop for OnTerminal {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
