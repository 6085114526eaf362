//! Does one thing to several pods and containers, one after the other. A failure of one does not stop the
//! others. A daemon that does not answer ends the command: the next call would not be answered either.

use std::process::ExitCode;

use crate::daemon::DaemonError;
use crate::exit;
use crate::show::{escape, out, units};

/// A pod or a container, as it is named in the command's lines.
pub(crate) trait Subject {
    /// "pod" or "container".
    fn kind(&self) -> &'static str;
    fn id(&self) -> &str;
    /// NAMESPACE/POD, or NAMESPACE/POD/CONTAINER.
    fn path(&self) -> String;
}

/// Acts on each subject, and prints a line for it that begins with `done`. Returns failure if one failed.
///
/// # Errors
/// [`DaemonError::Late`]. An output without a reader is none: the work was asked for.
pub(crate) async fn each<S: Subject>(
    subjects: Vec<S>,
    done: &'static str,
    act: impl AsyncFn(&S) -> anyhow::Result<()>,
) -> anyhow::Result<ExitCode> {
    let mut code = ExitCode::SUCCESS;
    for subject in subjects {
        match act(&subject).await {
            Ok(()) => out::say(line(done, &subject)),
            Err(late) if matches!(late.downcast_ref(), Some(DaemonError::Late { .. })) => return Err(late),
            Err(error) => {
                let failure = format!("{} {}: {error:#}", subject.kind(), subject.path());
                out::complain(escape::line(&failure));
                code = ExitCode::from(exit::PODVISOR_FAILED);
            }
        }
    }
    Ok(code)
}

fn line(done: &str, subject: &impl Subject) -> String {
    let line = format!("{done} {}: {}", units::short(subject.id()), subject.path());
    escape::line(&line).into_owned()
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    struct Named(&'static str);

    impl Subject for Named {
        fn kind(&self) -> &'static str {
            "pod"
        }

        fn id(&self) -> &str {
            self.0
        }

        fn path(&self) -> String {
            format!("shop/{}", self.0)
        }
    }

    async fn tried(late: bool) -> (bool, Vec<&'static str>) {
        let asked = RefCell::new(Vec::new());
        let outcome = each(vec![Named("a"), Named("b"), Named("c")], "stopped", async |one| {
            asked.borrow_mut().push(one.0);
            match one.0 {
                "b" if late => Err(DaemonError::Late {
                    socket: "/s".into(),
                    call: "StopPodSandbox",
                    limit: std::time::Duration::ZERO,
                }
                .into()),
                "b" => Err(DaemonError::Refused("no".into()).into()),
                _ => Ok(()),
            }
        });
        let code = outcome.await;
        (code.is_ok_and(|code| code == ExitCode::SUCCESS), asked.into_inner())
    }

    #[tokio::test]
    async fn a_failure_stops_no_other_and_a_daemon_that_hangs_stops_all() {
        assert_eq!(tried(false).await, (false, vec!["a", "b", "c"]));
        assert_eq!(tried(true).await, (false, vec!["a", "b"]));
    }

    #[test]
    fn a_line_names_its_subject() {
        assert_eq!(line("removed", &Named("web")), "removed web: shop/web");
    }
}
