//! The calls with tested steps: their preparation, and a kubelet's behaviour without an answer.

use std::path::PathBuf;

use proto_cri::v1;
use tests_e2e::client::Client;
use tests_e2e::kubelet_volumes::{KubeletVolumes, mounted};
use tests_e2e::{Host, spec};
use tonic::Status;

/// The name of the pods and of the containers of steps.
pub(crate) const NAME: &str = "subject";

/// The file of the published volume in the container.
const SETTING: &str = "/settings/key";

/// An RPC, or another event with an effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Call {
    RunPodSandbox,
    CreateContainer,
    StartContainer,
    ExecSync,
    StopContainer,
    RemoveContainer,
    StopPodSandbox,
    RemovePodSandbox,
    PullImage,
    RemoveImage,
    /// The kubelet publishes a new version of a volume kept in the guest.
    UpdateVolume,
}

impl Call {
    pub(crate) const ALL: [Call; 11] = [
        Call::RunPodSandbox,
        Call::CreateContainer,
        Call::StartContainer,
        Call::ExecSync,
        Call::StopContainer,
        Call::RemoveContainer,
        Call::StopPodSandbox,
        Call::RemovePodSandbox,
        Call::PullImage,
        Call::RemoveImage,
        Call::UpdateVolume,
    ];

    /// Returns true if a VM of the call's own pod may exist.
    pub(crate) fn has_a_vm(self) -> bool {
        !matches!(self, Call::RemovePodSandbox | Call::PullImage | Call::RemoveImage)
    }
}

/// The pod, container and image of a call.
pub(crate) struct Subject {
    /// The image of the containers.
    image: String,
    /// The image to pull and remove.
    other_image: String,
    config: v1::PodSandboxConfig,
    pod: String,
    container: String,
    volumes: Volumes,
}

/// Volumes kept in the guest, and mounted by the container.
struct Volumes {
    mounts: Vec<v1::Mount>,
    kubelet: KubeletVolumes,
    /// The number in the published volume's file.
    version: u32,
}

impl Volumes {
    fn make(config: &v1::PodSandboxConfig) -> std::io::Result<Volumes> {
        let mut kubelet = KubeletVolumes::of(config)?;
        let disk = kubelet.disk("disk", 0o777, 0)?;
        let mut volumes = Volumes { mounts: vec![mounted(&disk, "/disk")], kubelet, version: 0 };
        let published = volumes.publish()?;
        volumes.mounts.push(v1::Mount { readonly: true, ..mounted(&published, "/settings") });
        Ok(volumes)
    }

    /// Publishes the next version, and returns the volume's directory.
    fn publish(&mut self) -> std::io::Result<PathBuf> {
        self.version += 1;
        let text = self.version.to_string();
        self.kubelet.publish("configmap", "settings", &[("key", &text)], (0o644, 0))
    }
}

impl Subject {
    /// Prepares everything for the call.
    pub(crate) async fn prepare(
        host: &Host,
        call: Call,
        image: &str,
        other_image: &str,
    ) -> Result<Subject, Status> {
        let config = spec::pod(NAME, host.dir());
        let (image, other_image) = (image.to_owned(), other_image.to_owned());
        let volumes = Volumes::make(&config).unwrap();
        let (pod, container) = (String::new(), String::new());
        let mut subject = Subject { image, other_image, config, pod, container, volumes };
        let mut client = host.client();
        let earlier: &[Call] = match call {
            Call::RunPodSandbox | Call::PullImage => &[],
            Call::RemoveImage => &[Call::PullImage],
            Call::CreateContainer => &[Call::RunPodSandbox],
            Call::StartContainer => &[Call::RunPodSandbox, Call::CreateContainer],
            Call::ExecSync | Call::UpdateVolume | Call::StopContainer | Call::StopPodSandbox => {
                &[Call::RunPodSandbox, Call::CreateContainer, Call::StartContainer]
            }
            Call::RemoveContainer => {
                &[Call::RunPodSandbox, Call::CreateContainer, Call::StartContainer, Call::StopContainer]
            }
            Call::RemovePodSandbox => {
                &[Call::RunPodSandbox, Call::CreateContainer, Call::StartContainer, Call::StopPodSandbox]
            }
        };
        for call in earlier {
            subject.make(&mut client, *call).await?;
        }
        Ok(subject)
    }

    /// Makes the call.
    pub(crate) async fn make(&mut self, client: &mut Client, call: Call) -> Result<(), Status> {
        match call {
            Call::RunPodSandbox => self.pod = client.run_pod(&self.config).await?,
            Call::CreateContainer => {
                let attempt = self.config.metadata.as_ref().unwrap().attempt;
                self.container = client.create(&self.pod, self.container(attempt)).await?;
            }
            Call::StartContainer => client.start(&self.container).await?,
            Call::ExecSync => {
                let answer = client.exec(&self.container, &["echo", "said"], 60).await?;
                assert_eq!((answer.stdout.as_slice(), answer.exit_code), (&b"said\n"[..], 0));
            }
            Call::StopContainer => client.stop(&self.container, 0).await?,
            Call::RemoveContainer => client.remove(&self.container).await?,
            Call::StopPodSandbox => client.stop_pod(&self.pod).await?,
            Call::RemovePodSandbox => client.remove_pod(&self.pod).await?,
            Call::PullImage => drop(client.pull(&self.other_image).await?),
            Call::RemoveImage => remove_image(client, &self.other_image).await?,
            Call::UpdateVolume => {
                self.volumes.publish().unwrap();
                self.see_update(client).await?;
            }
        }
        Ok(())
    }

    /// Waits until the container has the last published version.
    async fn see_update(&self, client: &mut Client) -> Result<(), Status> {
        client.prints(&self.container, &format!("cat {SETTING}"), &self.volumes.version.to_string()).await
    }

    /// Continues like a kubelet after a failed call or a lost answer, until the call succeeds.
    pub(crate) async fn repeat(&mut self, client: &mut Client, call: Call) -> Result<(), Status> {
        match call {
            Call::PullImage | Call::RemoveImage => return self.make(client, call).await,
            Call::StopContainer | Call::RemoveContainer | Call::StopPodSandbox | Call::RemovePodSandbox => {
                // All four succeed for a removed or ended object, too.
                return self.make(client, call).await;
            }
            Call::RunPodSandbox
            | Call::CreateContainer
            | Call::StartContainer
            | Call::ExecSync
            | Call::UpdateVolume => {}
        }
        self.find_pod(client).await?;
        if call == Call::RunPodSandbox {
            return Ok(());
        }
        self.find_container(client).await?;
        if call == Call::CreateContainer {
            return Ok(());
        }
        let status = client.status(&self.container).await?;
        if status.state() == v1::ContainerState::ContainerCreated {
            self.make(client, Call::StartContainer).await?;
        }
        let status = client.status(&self.container).await?;
        if status.state() != v1::ContainerState::ContainerRunning {
            return Err(Status::internal(format!("it does not run: {status:?}")));
        }
        if call == Call::UpdateVolume {
            // A version published without a daemon is not lost.
            return self.see_update(client).await;
        }
        self.make(client, Call::ExecSync).await
    }

    /// Finds the pod ready, or removes its remains and runs the next attempt.
    async fn find_pod(&mut self, client: &mut Client) -> Result<(), Status> {
        let pods = pods(client).await?;
        let ready: Vec<_> =
            pods.iter().filter(|pod| pod.state() == v1::PodSandboxState::SandboxReady).collect();
        if let [pod] = ready[..] {
            self.pod.clone_from(&pod.id);
            return Ok(());
        }
        assert!(ready.is_empty(), "one pod is there twice: {pods:?}");
        for pod in &pods {
            client.stop_pod(&pod.id).await?;
            client.remove_pod(&pod.id).await?;
        }
        self.config.metadata.as_mut().unwrap().attempt += 1;
        self.make(client, Call::RunPodSandbox).await
    }

    /// Finds the pod's container, created or running, or removes its remains and creates the next attempt.
    async fn find_container(&mut self, client: &mut Client) -> Result<(), Status> {
        let of_pod: Vec<_> = containers(client)
            .await?
            .into_iter()
            .filter(|container| container.pod_sandbox_id == self.pod)
            .collect();
        let (usable, ended): (Vec<_>, Vec<_>) = of_pod.into_iter().partition(|container| {
            matches!(
                container.state(),
                v1::ContainerState::ContainerCreated | v1::ContainerState::ContainerRunning
            )
        });
        for container in &ended {
            client.stop(&container.id, 0).await?;
            client.remove(&container.id).await?;
        }
        if let [container] = &usable[..] {
            self.container.clone_from(&container.id);
            return Ok(());
        }
        assert!(usable.is_empty(), "one container is there twice: {usable:?}");
        self.make(client, Call::CreateContainer).await
    }

    fn container(&self, attempt: u32) -> v1::ContainerConfig {
        // On standard error too: each stream has its own way to the log.
        let mut config = spec::shell(NAME, &self.image, "echo out; echo err >&2; sleep 100000");
        config.metadata.as_mut().unwrap().attempt = attempt;
        config.mounts.clone_from(&self.volumes.mounts);
        config
    }

    /// Takes everything away.
    pub(crate) async fn remove(&self, client: &mut Client) -> Result<(), Status> {
        for pod in pods(client).await? {
            client.stop_pod(&pod.id).await?;
            client.remove_pod(&pod.id).await?;
        }
        remove_image(client, &self.other_image).await
    }
}

/// The pods of steps.
async fn pods(client: &mut Client) -> Result<Vec<v1::PodSandbox>, Status> {
    let of_steps = |pod: &v1::PodSandbox| pod.metadata.as_ref().is_some_and(|metadata| metadata.name == NAME);
    Ok(client.pods().await?.into_iter().filter(of_steps).collect())
}

/// All containers of the node.
pub(crate) async fn containers(client: &mut Client) -> Result<Vec<v1::Container>, Status> {
    Ok(client.runtime.list_containers(v1::ListContainersRequest::default()).await?.into_inner().containers)
}

async fn remove_image(client: &mut Client, image: &str) -> Result<(), Status> {
    let image = Some(v1::ImageSpec { image: image.to_owned(), ..Default::default() });
    client.images.remove_image(v1::RemoveImageRequest { image }).await.map(drop)
}
