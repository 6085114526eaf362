//! The pod's interfaces, from the pod's view: received and sent traffic.

use runtime_pod::InterfaceUsage;

use super::metric::{Metric, Origin, PodSource, Values, counter};

const fn of_interface(name: &'static str, help: &'static str) -> Metric {
    Metric { labels: &["interface"], pod_origin: Origin::Guest, ..counter(name, help) }
}

pub(super) const METRICS: &[Metric] = &[
    Metric {
        pod: |p| each(p, |one| one.rx_bytes),
        ..of_interface("container_network_receive_bytes_total", "Bytes received.")
    },
    Metric {
        pod: |p| each(p, |one| one.rx_packets),
        ..of_interface("container_network_receive_packets_total", "Packets received.")
    },
    Metric {
        pod: |p| each(p, |one| one.rx_errors),
        ..of_interface("container_network_receive_errors_total", "Packets that arrived broken.")
    },
    Metric {
        pod: |p| each(p, |one| one.rx_dropped),
        ..of_interface("container_network_receive_packets_dropped_total", "Packets dropped on arrival.")
    },
    Metric {
        pod: |p| each(p, |one| one.tx_bytes),
        ..of_interface("container_network_transmit_bytes_total", "Bytes sent.")
    },
    Metric {
        pod: |p| each(p, |one| one.tx_packets),
        ..of_interface("container_network_transmit_packets_total", "Packets sent.")
    },
    Metric {
        pod: |p| each(p, |one| one.tx_errors),
        ..of_interface("container_network_transmit_errors_total", "Packets that could not be sent.")
    },
    Metric {
        pod: |p| each(p, |one| one.tx_dropped),
        ..of_interface("container_network_transmit_packets_dropped_total", "Packets dropped instead of sent.")
    },
];

fn each(p: &PodSource<'_>, value: impl Fn(&InterfaceUsage) -> u64) -> Values {
    let interfaces = p.guest.map(|guest| guest.interfaces.as_slice()).unwrap_or_default();
    interfaces.iter().map(|one| (vec![one.name.clone()], value(one).into())).collect()
}
