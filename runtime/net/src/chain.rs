//! Runs a network's plugins in order: ADD forwards, each with the previous result, DEL backwards (CNI
//! specification 1.1.0, section 3). Creates no namespace and writes no file; `plugin.rs` runs a single
//! plugin.

use std::{ffi::OsString, path::PathBuf, time::Duration};

use serde_json::{Map, Value, json};

use crate::{
    NetError, PodNetworkSpec,
    config::NetworkList,
    plugin::{self, Call},
    result,
    settings::Watch,
};

/// The interface's name in the pod. All Kubernetes runtimes use it.
pub(crate) const INTERFACE: &str = "eth0";

/// The directories of the plugins, and the most time for one run.
#[derive(Clone, Debug)]
pub(crate) struct Plugins {
    pub(crate) dirs: Vec<PathBuf>,
    pub(crate) time_max: Duration,
    pub(crate) open_files_max: Option<u64>,
    /// The delay before a plugin is tried again if its file is being written.
    pub(crate) busy_wait: Duration,
}

/// One pod's attachment to one network.
#[derive(Debug)]
pub(crate) struct Chain<'a> {
    pub(crate) plugins: &'a Plugins,
    pub(crate) list: &'a NetworkList,
    pub(crate) spec: &'a PodNetworkSpec,
    /// Path of the namespace's mount; empty if the namespace is gone, which DEL allows.
    pub(crate) netns: OsString,
}

impl Chain<'_> {
    /// Runs ADD. Returns the last plugin's result and the parts of it needed by the pod. The watch surveys
    /// the namespace after each plugin.
    pub(crate) async fn add(
        &self,
        mut watch: Option<&mut Watch>,
    ) -> Result<(Value, result::AddResult), NetError> {
        let mut answer = Value::Null;
        let mut reported = None;
        for plugin in &self.list.plugins {
            let stdin = self.configuration(plugin, &answer);
            let call = self.call(plugin, "ADD", &stdin)?;
            answer = versioned(call.run().await?, self.list.version)
                .map_err(|kind| call.answer(format!("its result is not a JSON object but {kind}")))?;
            let result = result::read(&answer, INTERFACE).map_err(|reason| call.answer(reason))?;
            if !result.sockets.is_empty() {
                let (pod, plugin, interfaces) = (&self.spec.pod_id, call.plugin, &result.sockets);
                tracing::warn!(pod, plugin, ?interfaces, "socket interfaces do not reach the pod");
            }
            reported = Some(result);
            if let Some(watch) = watch.as_deref_mut() {
                watch.after(call.plugin).await;
            }
        }
        Ok((answer, reported.expect("a network list has at least one plugin")))
    }

    /// Runs DEL, last plugin first, and stops at the first failure. "Nothing to remove" is not a failure.
    /// Before 0.4.0 DEL had no result.
    pub(crate) async fn del(&self, result: &Value) -> Result<(), NetError> {
        let result = if self.list.since("0.4.0") { result } else { &Value::Null };
        for plugin in self.list.plugins.iter().rev() {
            match self.call(plugin, "DEL", &self.configuration(plugin, result))?.run().await {
                Err(error) if error.says_gone(!self.netns.is_empty()) => {
                    tracing::debug!(
                        pod = self.spec.pod_id,
                        error = error.chain(),
                        "a plugin has nothing to remove"
                    );
                }
                other => drop(other?),
            }
        }
        Ok(())
    }

    fn call<'c>(
        &self,
        plugin: &'c Map<String, Value>,
        command: &'static str,
        stdin: &'c Map<String, Value>,
    ) -> Result<Call<'c>, NetError> {
        let spec = self.spec;
        let (namespace, name, id, uid) = (&spec.namespace, &spec.name, &spec.pod_id, &spec.uid);
        let args = format!(
            "IgnoreUnknown=1;K8S_POD_NAMESPACE={namespace};K8S_POD_NAME={name};K8S_POD_INFRA_CONTAINER_ID={id};\
             K8S_POD_UID={uid}"
        );
        let mut call = self.plugins.call(self.list, plugin, command, stdin)?;
        call.environment.extend([
            ("CNI_CONTAINERID", spec.pod_id.clone().into()),
            ("CNI_NETNS", self.netns.clone()),
            ("CNI_IFNAME", INTERFACE.into()),
            ("CNI_ARGS", args.into()),
        ]);
        Ok(call)
    }

    /// Builds a plugin's execution configuration: its own keys plus the list's and the pod's parts.
    fn configuration(&self, plugin: &Map<String, Value>, previous: &Value) -> Map<String, Value> {
        let mut filled = self.list.configuration(plugin);
        if !previous.is_null() {
            filled.insert("prevResult".into(), previous.clone());
        }
        let wants = |capability: &str| plugin.get("capabilities").is_some_and(|c| c[capability] == true);
        let mut offered = capabilities(self.spec);
        offered.retain(|capability, _| wants(capability));
        if !offered.is_empty() {
            filled.insert("runtimeConfig".into(), offered.into());
        }
        filled
    }
}

impl NetworkList {
    /// Asks each plugin if it could serve an ADD (STATUS) and stops at the first error. Plugins before 1.1.0
    /// are not asked.
    pub(crate) async fn status(&self, plugins: &Plugins) -> Result<(), NetError> {
        if !self.since("1.1.0") {
            return Ok(());
        }
        for plugin in &self.plugins {
            plugins.call(self, plugin, "STATUS", &self.configuration(plugin))?.run().await?;
        }
        Ok(())
    }

    /// Checks that the plugins reported an address for the pod: nothing reaches a pod without one. A chained
    /// plugin that does not pass on its `prevResult` loses it.
    pub(crate) fn require_address(&self, reported: &result::AddResult) -> Result<(), NetError> {
        if !reported.ips.is_empty() {
            return Ok(());
        }
        let last = self.plugins.last().and_then(|plugin| plugin.get("type")?.as_str());
        let reason = "the last result of the network's plugins has no address for the pod".into();
        Err(NetError::PluginAnswer { plugin: last.unwrap_or_default().to_owned(), command: "ADD", reason })
    }

    /// Whether its plugins are asked to clean up.
    pub(crate) fn collects(&self) -> bool {
        self.since("1.1.0") && !self.disables_gc
    }

    /// Runs GC: each plugin cleans up after attachments not in this list of container ids and interface
    /// names. A failing plugin does not stop the others. Plugins before 1.1.0 are not asked.
    pub(crate) async fn collect(&self, plugins: &Plugins, valid: &[(String, String)]) -> Vec<NetError> {
        if !self.collects() {
            return Vec::new();
        }
        let valid: Vec<_> =
            valid.iter().map(|(id, interface)| json!({"containerID": id, "ifname": interface})).collect();
        let mut failures = Vec::new();
        for plugin in &self.plugins {
            let mut stdin = self.configuration(plugin);
            // The second name is from an early draft. libcni sends it too.
            for key in ["cni.dev/valid-attachments", "cni.dev/attachments"] {
                stdin.insert(key.into(), valid.clone().into());
            }
            let done = match plugins.call(self, plugin, "GC", &stdin) {
                Ok(call) => call.run().await,
                Err(error) => Err(error),
            };
            failures.extend(done.err());
        }
        failures
    }

    /// Builds the part of a plugin's configuration common to all pods. `capabilities` is for the runtime
    /// only.
    fn configuration(&self, plugin: &Map<String, Value>) -> Map<String, Value> {
        let mut filled = plugin.clone();
        filled.remove("capabilities");
        filled.insert("name".into(), self.name.clone().into());
        filled.insert("cniVersion".into(), self.version.into());
        filled
    }
}

impl Plugins {
    /// Checks for the binary of every plugin in the list.
    pub(crate) fn complete(&self, list: &NetworkList) -> Result<(), NetError> {
        list.plugins.iter().try_for_each(|plugin| self.binary(list, plugin).map(drop))
    }

    fn call<'c>(
        &self,
        list: &NetworkList,
        plugin: &'c Map<String, Value>,
        command: &'static str,
        stdin: &'c Map<String, Value>,
    ) -> Result<Call<'c>, NetError> {
        let (name, binary) = self.binary(list, plugin)?;
        let environment = vec![("CNI_PATH", self.path())];
        let Plugins { time_max, open_files_max, busy_wait, .. } = *self;
        Ok(Call { plugin: name, binary, command, environment, stdin, time_max, open_files_max, busy_wait })
    }

    fn binary<'p>(
        &self,
        list: &NetworkList,
        plugin: &'p Map<String, Value>,
    ) -> Result<(&'p str, PathBuf), NetError> {
        let name = plugin.get("type").and_then(Value::as_str).unwrap_or_default();
        let found = plugin::find(name, &self.dirs).ok_or_else(|| NetError::PluginMissing {
            plugin: name.to_owned(),
            file: list.file.clone(),
            dirs: self.path().to_string_lossy().into_owned(),
        })?;
        Ok((name, found))
    }

    pub(crate) fn path(&self) -> OsString {
        let dirs: Vec<_> = self.dirs.iter().map(|dir| dir.as_os_str()).collect();
        dirs.join(std::ffi::OsStr::new(":"))
    }
}

/// The burst allowed by a bandwidth limit, in bits. Kubernetes defines no such number; other runtimes use
/// this one.
const BURST_BITS: u32 = u32::MAX;

/// The capability for a pod's annotations (containerd's name).
const ANNOTATIONS: &str = "io.kubernetes.cri.pod-annotations";

/// The pod's requests, by capability (names and units of the CNI conventions).
fn capabilities(spec: &PodNetworkSpec) -> Map<String, Value> {
    let mut asked = Map::new();
    let mut ports = Vec::new();
    for port in spec.port_mappings.iter().filter(|port| port.host_port != 0) {
        let protocol = port.protocol.name();
        let mut mapping =
            json!({"hostPort": port.host_port, "containerPort": port.container_port, "protocol": protocol});
        // Without it the port is open on all addresses. A plugin maps none for a text that is no address.
        if !port.host_ip.is_empty() {
            mapping["hostIP"] = port.host_ip.clone().into();
        }
        ports.push(mapping);
    }
    if !ports.is_empty() {
        asked.insert("portMappings".into(), ports.into());
    }
    let limits = [("ingress", spec.bandwidth.ingress_bits), ("egress", spec.bandwidth.egress_bits)];
    let mut bandwidth = Map::new();
    for (way, bits) in limits.into_iter().filter_map(|(way, bits)| Some((way, bits?))) {
        bandwidth.insert(format!("{way}Rate"), bits.into());
        bandwidth.insert(format!("{way}Burst"), BURST_BITS.into());
    }
    if !bandwidth.is_empty() {
        asked.insert("bandwidth".into(), bandwidth.into());
    }
    if let Some(dns) = &spec.dns {
        let dns = json!({"servers": dns.servers, "searches": dns.searches, "options": dns.options});
        asked.insert("dns".into(), dns);
    }
    if !spec.cgroup_parent.is_empty() {
        asked.insert("cgroupPath".into(), spec.cgroup_parent.clone().into());
    }
    asked.insert(ANNOTATIONS.into(), json!(spec.annotations));
    asked
}

/// Adds the version to a result. A result without one has its configuration's version, and null is an empty
/// result (libcni, issue 895).
fn versioned(answer: Value, version: &str) -> Result<Value, &'static str> {
    let mut fields = match answer {
        Value::Object(fields) => fields,
        other => return Err(kind(&other)),
    };
    if matches!(fields.get("cniVersion").map(Value::as_str), None | Some(None | Some(""))) {
        fields.insert("cniVersion".into(), version.into());
    }
    Ok(fields.into())
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "nothing",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    }
}

#[cfg(test)]
mod tests;
