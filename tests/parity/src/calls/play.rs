//! Plays a script on one runtime, and returns the client's view.

use std::path::PathBuf;

use anyhow::{Context, Result};
use proto_cri::v1;
use tempfile::TempDir;
use tonic::Status;

use super::Script;
use super::names::{ImageNames, Names};
use super::seen;
use super::step::{Step, Verb};
use crate::case::{Case, Limits, Mount, Pod, Security};
use crate::outcome::Outcome;
use crate::request;
use crate::side::{RunningPod, Side};
use crate::sources::Sources;

/// What a step has shown: lines of its answer, or how it was refused.
type Shown = Result<Vec<String>, Status>;

/// Plays the script with its image, already in the registry. `newest` compares fields that containerd 1.6
/// does not know.
///
/// # Errors
/// If the script cannot be played at all: it names something that it has not made.
pub(crate) async fn run(side: &mut Side, script: &Script, reference: &str, newest: bool) -> Result<Outcome> {
    let image = image_names(side, reference).await?;
    let dir = side.run_dir()?;
    let mut play = Play { side, dir, newest, names: Names { image, ..Names::default() } };
    let mut outcome = Outcome::default();
    let steps = script.parsed()?;
    let mut played = Ok(());
    for (number, (step, text)) in steps.iter().zip(&script.steps).enumerate() {
        let what = format!("{} {text}", number + 1);
        match play.step(step).await {
            Ok(Ok(lines)) => {
                outcome.saw(format!("{what}: ok"));
                lines.into_iter().for_each(|line| outcome.saw(format!("{what} | {line}")));
            }
            Ok(Err(status)) => {
                outcome.saw(format!("{what}: {}", seen::refusal(&status)));
                outcome.errors.push(format!("{what}: {:?}: {}", status.code(), status.message()));
            }
            Err(error) => {
                played = Err(error.context(what));
                break;
            }
        }
    }
    let pods: Vec<String> = play.names.pods.values().map(|pod| pod.id.clone()).collect();
    for id in pods {
        play.side.remove_pod(&id).await;
    }
    played.map(|()| outcome)
}

async fn image_names(side: &mut Side, reference: &str) -> Result<ImageNames> {
    let id = side.pull(reference).await.context("pulling the script's image")?;
    let image = side.image(&id).await?.context("the pulled image has no status")?;
    let repository = reference.rsplit_once(':').map_or(reference, |(repository, _)| repository);
    let digest = image.repo_digests.into_iter().find(|name| name.starts_with(repository)).unwrap_or_default();
    Ok(ImageNames { tag: reference.to_owned(), digest, id: image.id })
}

struct Play<'a> {
    side: &'a mut Side,
    dir: TempDir,
    newest: bool,
    names: Names,
}

impl Play<'_> {
    async fn step(&mut self, step: &Step) -> Result<Shown> {
        match step.verb {
            Verb::Run | Verb::StopPod | Verb::RemovePod | Verb::Pod | Verb::Pods => self.of_pods(step).await,
            Verb::Create => self.create(step).await,
            Verb::Start
            | Verb::Stop
            | Verb::Remove
            | Verb::Wait
            | Verb::Exec
            | Verb::Update
            | Verb::Reopen => self.of_a_container(step).await,
            Verb::Status | Verb::Containers => self.containers(step).await,
            Verb::Stats | Verb::AllStats | Verb::PodStats | Verb::AllPodStats => self.stats(step).await,
            Verb::ExecUrl | Verb::AttachUrl | Verb::ForwardUrl => self.urls(step).await,
            Verb::Pull | Verb::Image | Verb::Images | Verb::RemoveImage => self.images(step).await,
            Verb::Version => {
                let request = v1::VersionRequest { version: step.target.clone() };
                let answer = self.side.call(async |runtime, _| runtime.version(request).await).await;
                Ok(answer.map(|answer| vec![format!("{} {}", answer.version, answer.runtime_api_version)]))
            }
        }
    }

    async fn of_pods(&mut self, step: &Step) -> Result<Shown> {
        if step.verb == Verb::Run {
            return self.run_pod(step).await;
        }
        let pod_sandbox_id = self.names.id(&step.target)?;
        Ok(match step.verb {
            Verb::StopPod => {
                let request = v1::StopPodSandboxRequest { pod_sandbox_id };
                none(self.side.call(async |runtime, _| runtime.stop_pod_sandbox(request).await).await)
            }
            Verb::RemovePod => {
                let request = v1::RemovePodSandboxRequest { pod_sandbox_id };
                none(self.side.call(async |runtime, _| runtime.remove_pod_sandbox(request).await).await)
            }
            Verb::Pod => {
                let request = v1::PodSandboxStatusRequest { pod_sandbox_id, verbose: false };
                let answer =
                    self.side.call(async |runtime, _| runtime.pod_sandbox_status(request).await).await;
                answer.map(|answer| {
                    answer.status.map_or_else(Vec::new, |status| seen::pod(&status, &self.names))
                })
            }
            _ => {
                let filter = self.pod_filter(step)?;
                let request = v1::ListPodSandboxRequest { filter };
                let answer = self.side.call(async |runtime, _| runtime.list_pod_sandbox(request).await).await;
                answer.map(|answer| sorted(answer.items.iter().map(|pod| seen::listed_pod(pod, &self.names))))
            }
        })
    }

    async fn run_pod(&mut self, step: &Step) -> Result<Shown> {
        let mut config = self.side.pod_config(&Pod {
            shared_pids: step.field("shared-pids").is_some(),
            privileged: step.field("privileged").is_some(),
            ..Pod::default()
        });
        if let Some(other) = step.field("again") {
            let other = self.names.pods.get(other).context("again= names no pod")?;
            config.metadata.clone_from(&other.config.metadata);
        }
        config.labels = step.map("label");
        config.annotations = step.map("annotation");
        if let (Some(name), Some(metadata)) = (step.field("name"), &mut config.metadata) {
            self.names.image.resolve(name).clone_into(&mut metadata.name);
        }
        let handler = step.field("handler").unwrap_or_default().to_owned();
        let ran = self.side.run_configured(config, handler).await;
        self.names.note(&step.target, ran.is_ok());
        Ok(ran.map(|pod| {
            self.names.pods.insert(step.target.clone(), pod);
            Vec::new()
        }))
    }

    async fn create(&mut self, step: &Step) -> Result<Shown> {
        let pod_name = step.field("in").context("create has in=POD")?;
        let pod = match self.names.pods.get(pod_name) {
            Some(pod) => pod.clone(),
            None => {
                RunningPod { id: self.names.id(pod_name)?, config: self.side.pod_config(&Pod::default()) }
            }
        };
        let config = self.container_config(step)?;
        let created = self.side.create(&pod, config).await;
        self.names.note(&step.target, created.is_ok());
        Ok(created.map(|id| {
            self.names.containers.insert(step.target.clone(), id);
            Vec::new()
        }))
    }

    fn container_config(&self, step: &Step) -> Result<v1::ContainerConfig> {
        let line = step.line.as_deref().unwrap_or("sleep 1000000");
        let volume = self.dir.path().join(step.field("volume").unwrap_or(&step.target)).join("volume");
        std::fs::create_dir_all(&volume)?;
        let mounts = step.field("mount").map(|to| Mount {
            to: to.to_owned(),
            node: Some(volume.display().to_string()),
            read_only: step.field("read-only").is_some(),
            propagation: step.field("propagation").unwrap_or_default().to_owned(),
            ..Mount::default()
        });
        let shared_pids = step.field("shared-pids").is_some();
        let case = Case {
            sh: Some(line.to_owned()),
            limits: Limits { memory_mib: step.number("memory")?, ..Limits::default() },
            mounts: mounts.into_iter().collect(),
            security: Security { privileged: step.field("privileged").is_some(), ..Security::default() },
            pod: Pod { shared_pids, ..Pod::default() },
            stdin: step.field("stdin").is_some(),
            tty: step.field("tty").is_some(),
            ..Case::default()
        };
        let dir: PathBuf = self.dir.path().join(&step.target);
        std::fs::create_dir_all(&dir)?;
        let sources = Sources::make(&case.mounts, &dir)?;
        let image = self.names.image.resolve(step.field("image").unwrap_or("@id"));
        let mut config = request::container(&case, &image, &sources, &dir)?;
        let name = step.field("name").unwrap_or(&step.target).to_owned();
        config.log_path = format!("{name}.log");
        config.metadata = Some(v1::ContainerMetadata { name, attempt: step.number("attempt")? });
        config.labels = step.map("label");
        config.annotations = step.map("annotation");
        Ok(config)
    }

    async fn of_a_container(&mut self, step: &Step) -> Result<Shown> {
        let id = self.names.id(&step.target)?;
        Ok(match step.verb {
            Verb::Start => self.side.start(&id).await.map(|()| Vec::new()),
            Verb::Stop => self.side.stop(&id, step.number("timeout")?).await.map(|()| Vec::new()),
            Verb::Remove => self.side.remove(&id).await.map(|()| Vec::new()),
            Verb::Wait => self.side.ended(&id).await.map(|_| Vec::new()),
            Verb::Exec => {
                let words = ["sh", "-c", step.line.as_deref().unwrap_or("true")].map(str::to_owned);
                self.side.exec(&id, &words, step.number("timeout")?).await.map(|answer| {
                    let output = String::from_utf8_lossy(&answer.stdout).into_owned();
                    vec![format!("exit {}", answer.exit_code), format!("output {output:?}")]
                })
            }
            Verb::Update => {
                let linux = v1::LinuxContainerResources {
                    memory_limit_in_bytes: step.number::<i64>("memory")? << 20,
                    cpu_shares: step.number("shares")?,
                    ..Default::default()
                };
                let request = v1::UpdateContainerResourcesRequest {
                    container_id: id,
                    linux: Some(linux),
                    ..Default::default()
                };
                none(
                    self.side
                        .call(async |runtime, _| runtime.update_container_resources(request).await)
                        .await,
                )
            }
            _ => {
                let request = v1::ReopenContainerLogRequest { container_id: id };
                none(self.side.call(async |runtime, _| runtime.reopen_container_log(request).await).await)
            }
        })
    }

    async fn containers(&mut self, step: &Step) -> Result<Shown> {
        if step.verb == Verb::Status {
            let id = self.names.id(&step.target)?;
            let status = self.side.status(&id).await;
            return Ok(status.map(|status| seen::container(&status, &self.names, self.newest)));
        }
        let state = match step.field("state") {
            None => None,
            Some(name) => {
                let name = format!("CONTAINER_{}", name.to_uppercase());
                let state = v1::ContainerState::from_str_name(&name).context("an unknown state")?;
                Some(v1::ContainerStateValue { state: state.into() })
            }
        };
        let filter = v1::ContainerFilter {
            id: self.names.id(step.field("id").unwrap_or_default())?,
            state,
            pod_sandbox_id: self.names.id(step.field("pod").unwrap_or_default())?,
            label_selector: step.map("label"),
        };
        let request = v1::ListContainersRequest { filter: Some(filter) };
        let answer = self.side.call(async |runtime, _| runtime.list_containers(request).await).await;
        Ok(answer.map(|answer| sorted(answer.containers.iter().map(|one| seen::listed(one, &self.names)))))
    }

    fn pod_filter(&self, step: &Step) -> Result<Option<v1::PodSandboxFilter>> {
        let state = match step.field("state") {
            None => None,
            Some(name) => {
                let name = format!("SANDBOX_{}", name.to_uppercase());
                let state = v1::PodSandboxState::from_str_name(&name).context("an unknown state")?;
                Some(v1::PodSandboxStateValue { state: state.into() })
            }
        };
        let id = self.names.id(step.field("id").unwrap_or_default())?;
        Ok(Some(v1::PodSandboxFilter { id, state, label_selector: step.map("label") }))
    }

    async fn stats(&mut self, step: &Step) -> Result<Shown> {
        let target = self.names.id(&step.target)?;
        let id = self.names.id(step.field("id").unwrap_or_default())?;
        let label_selector = step.map("label");
        Ok(match step.verb {
            Verb::Stats => {
                let request = v1::ContainerStatsRequest { container_id: target };
                let answer = self.side.call(async |runtime, _| runtime.container_stats(request).await).await;
                answer.map(|answer| sorted(answer.stats.iter().map(|one| seen::stats(one, &self.names))))
            }
            Verb::AllStats => {
                let pod_sandbox_id = self.names.id(step.field("pod").unwrap_or_default())?;
                let filter = Some(v1::ContainerStatsFilter { id, pod_sandbox_id, label_selector });
                let request = v1::ListContainerStatsRequest { filter };
                let answer =
                    self.side.call(async |runtime, _| runtime.list_container_stats(request).await).await;
                answer.map(|answer| sorted(answer.stats.iter().map(|one| seen::stats(one, &self.names))))
            }
            Verb::PodStats => {
                let request = v1::PodSandboxStatsRequest { pod_sandbox_id: target };
                let answer =
                    self.side.call(async |runtime, _| runtime.pod_sandbox_stats(request).await).await;
                answer.map(|answer| sorted(answer.stats.iter().map(|one| seen::pod_stats(one, &self.names))))
            }
            _ => {
                let filter = Some(v1::PodSandboxStatsFilter { id, label_selector });
                let request = v1::ListPodSandboxStatsRequest { filter };
                let answer =
                    self.side.call(async |runtime, _| runtime.list_pod_sandbox_stats(request).await).await;
                answer.map(|answer| sorted(answer.stats.iter().map(|one| seen::pod_stats(one, &self.names))))
            }
        })
    }

    async fn urls(&mut self, step: &Step) -> Result<Shown> {
        let id = self.names.id(&step.target)?;
        let (tty, stdin) = (step.field("tty").is_some(), step.field("stdin").is_some());
        let (stdout, stderr) = (step.field("quiet").is_none(), step.field("quiet").is_none() && !tty);
        let url = match step.verb {
            Verb::ExecUrl => {
                let cmd = ["sh", "-c", step.line.as_deref().unwrap_or("true")].map(str::to_owned).to_vec();
                let request = v1::ExecRequest { container_id: id, cmd, tty, stdin, stdout, stderr };
                self.side.call(async |runtime, _| runtime.exec(request).await).await.map(|answer| answer.url)
            }
            Verb::AttachUrl => {
                let request = v1::AttachRequest { container_id: id, tty, stdin, stdout, stderr };
                self.side
                    .call(async |runtime, _| runtime.attach(request).await)
                    .await
                    .map(|answer| answer.url)
            }
            _ => {
                let port = vec![step.number("port")?];
                let request = v1::PortForwardRequest { pod_sandbox_id: id, port };
                self.side
                    .call(async |runtime, _| runtime.port_forward(request).await)
                    .await
                    .map(|answer| answer.url)
            }
        };
        Ok(url.map(|url| vec![format!("an address {}", url.starts_with("http"))]))
    }

    async fn images(&mut self, step: &Step) -> Result<Shown> {
        let name = self.names.image.resolve(&step.target);
        let image = Some(v1::ImageSpec { image: name.clone(), ..Default::default() });
        Ok(match step.verb {
            Verb::Pull => self.side.pull(&name).await.map(|id| vec![self.names.image.shown(&id)]),
            Verb::Image => self.side.image(&name).await.map(|image| {
                image.map_or_else(
                    || vec!["no image".into()],
                    |image| sorted([seen::listed_image(&image, &self.names)]),
                )
            }),
            Verb::Images => {
                let filter = (!step.target.is_empty()).then_some(v1::ImageFilter { image });
                let request = v1::ListImagesRequest { filter };
                let answer = self.side.call(async |_, images| images.list_images(request).await).await;
                answer.map(|answer| {
                    sorted(answer.images.iter().map(|one| seen::listed_image(one, &self.names)))
                })
            }
            _ => {
                let request = v1::RemoveImageRequest { image };
                none(self.side.call(async |_, images| images.remove_image(request).await).await)
            }
        })
    }
}

fn none<T>(answer: Result<T, Status>) -> Shown {
    answer.map(|_| Vec::new())
}

/// The lines of a script's own items. Lists have no order.
fn sorted(lines: impl IntoIterator<Item = Option<String>>) -> Vec<String> {
    let mut lines: Vec<String> = lines.into_iter().flatten().collect();
    lines.sort();
    lines
}
