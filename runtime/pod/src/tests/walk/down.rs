//! The node while no daemon runs: programs and VMs end, lines stay unfinished, values on disk are damaged,
//! the node is started again.

use std::io::Write;

use proto_vmm::StopReason;
use rand::Rng;
use runtime_store::{Batch, Store, Table};

use super::action::Action;
use super::life::{Place, Walk};
use super::log::TORN;
use super::model::{ContainerStage, MEANWHILE, Name};
use super::observed::vm_of;

impl Walk {
    /// Lets something befall the node, and the model with it.
    pub(super) fn befall_the_node(&mut self, place: &Place) {
        // The next daemon ends the VM of a hanging guest.
        for pod in self.model.pods.clone().into_iter().filter(|(_, pod)| pod.silent).map(|(number, _)| number)
        {
            self.model.end_vm(pod);
        }
        match self.killed_in.first() {
            Some(Action::Reboot) => self.reboot(place),
            Some(Action::Damage(table)) => self.damage(place, *table),
            _ => self.end_something(place),
        }
    }

    fn reboot(&mut self, place: &Place) {
        for vm in place.script.running() {
            vm.end(StopReason::Vmm { message: "the node has ended".into() }, "");
        }
        std::fs::remove_dir_all(place.dir.path().join("run")).unwrap();
        for number in self.model.pods.keys().copied().collect::<Vec<_>>() {
            self.model.end_vm(number);
        }
    }

    /// Replaces one value by an unreadable one.
    fn damage(&mut self, place: &Place, table: Table) {
        let store = Store::open(&place.dir.path().join("store.redb")).unwrap();
        let keys: Vec<String> =
            store.list::<serde_json::Value>(table).unwrap().values.into_iter().map(|(key, _)| key).collect();
        if keys.is_empty() {
            return;
        }
        let key = &keys[self.random.random_range(0..keys.len())];
        store.commit(Batch::new().put(table, key, &"damaged").unwrap()).unwrap();
        self.note(format!("   {table:?}/{key} is damaged"));
        let pod = self.model.pods.iter().find(|(_, pod)| pod.id == *key).map(|(number, _)| *number);
        let container = self.named(key);
        match table {
            Table::PodRecords => self.model.pods.retain(|_, pod| pod.id != *key),
            Table::PodStatuses => self.model.end_vm(pod.unwrap_or(usize::MAX)),
            Table::ContainerRecords => {
                place.script.state().lost.insert(key.clone());
                self.model.pods.values_mut().for_each(|pod| pod.containers.retain(|_, one| one.id != *key));
            }
            Table::ContainerStatuses => {
                let Some(name) = container else { return };
                self.model.change(name, |one| one.stage = ContainerStage::Unknown);
                self.unlimited = Some(name);
            }
        }
    }

    fn named(&self, id: &str) -> Option<Name> {
        self.model.pods.iter().find_map(|(pod, model)| {
            let found = model.containers.iter().find(|(_, one)| one.id == id);
            found.map(|(container, _)| (*pod, *container))
        })
    }

    /// Ends a program or a VM, or leaves an unfinished line in a log.
    fn end_something(&mut self, place: &Place) {
        let ready: Vec<_> = self.model.pods.clone().into_iter().filter(|(_, pod)| pod.ready).collect();
        if ready.is_empty() || !self.random.random_ratio(1, 2) {
            return;
        }
        let (number, pod) = &ready[self.random.random_range(0..ready.len())];
        let Some(vm) = vm_of(&place.script, &pod.id) else { return };
        let running = pod.containers.iter().find(|(_, one)| one.stage == ContainerStage::Running);
        match (self.random.random_range(0..4), running) {
            (0, _) => {
                self.note(format!("   the VM of pod {number} ends meanwhile"));
                vm.crash("");
                self.model.end_vm(*number);
            }
            (1, Some((_, one))) => {
                let log = self.logs.get(&one.id).map(|log| place.dir.path().join("logs").join(log));
                let open = |path| std::fs::OpenOptions::new().append(true).open(path);
                if let Some(Ok(mut log)) = log.map(open) {
                    log.write_all(TORN.as_bytes()).unwrap();
                }
            }
            (_, Some((container, one))) if vm.agent.alive().contains(&one.id) => {
                self.note(format!("   container {:?} ends meanwhile", (number, container)));
                vm.agent.end(&one.id, MEANWHILE, false);
                self.model.change((*number, *container), |one| one.stage = ContainerStage::Exited(MEANWHILE));
            }
            _ => {}
        }
    }
}
