//! Traffic of the pod's interfaces, from `/proc/net/dev`: the agent lives in the pod's network.

use std::fs;

use proto_agent::agent::InterfaceUsage;

/// Most interfaces reported. A privileged container may make any number.
const INTERFACES_MAX: usize = 64;

pub(super) fn read() -> Vec<InterfaceUsage> {
    // A program with NET_ADMIN may name an interface by any bytes.
    parse(&String::from_utf8_lossy(&fs::read("/proc/net/dev").unwrap_or_default()))
}

/// Parses two lines of titles, and then on each line a name, eight values received and eight sent
/// (proc_pid_net(5)).
fn parse(table: &str) -> Vec<InterfaceUsage> {
    let lines = table.lines().filter_map(|line| line.trim_start().rsplit_once(": "));
    let interfaces = lines.filter(|(name, _)| *name != "lo").filter_map(|(name, figures)| {
        let figures: Vec<u64> = figures.split_whitespace().map_while(|figure| figure.parse().ok()).collect();
        let [rx_bytes, rx_packets, rx_errors, rx_dropped, _, _, _, _, sent @ ..] = figures.as_slice() else {
            return None;
        };
        let [tx_bytes, tx_packets, tx_errors, tx_dropped, ..] = sent else { return None };
        Some(InterfaceUsage {
            name: name.to_owned(),
            rx_bytes: *rx_bytes,
            rx_packets: *rx_packets,
            rx_errors: *rx_errors,
            rx_dropped: *rx_dropped,
            tx_bytes: *tx_bytes,
            tx_packets: *tx_packets,
            tx_errors: *tx_errors,
            tx_dropped: *tx_dropped,
            ..Default::default()
        })
    });
    interfaces.take(INTERFACES_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "\
Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed
    lo:     500       5    0    0    0     0          0         0      500       5    0    0    0     0       0          0
  eth0:    1000      10    1    2    0     0          0         0     2000      20    3    4    0     0       0          0
";

    #[test]
    fn every_interface_but_the_loopback_is_reported() {
        let interfaces = parse(TABLE);
        assert_eq!(interfaces.len(), 1);
        let eth0 = &interfaces[0];
        assert_eq!(
            (eth0.name.as_str(), eth0.rx_bytes, eth0.rx_errors, eth0.rx_dropped),
            ("eth0", 1000, 1, 2)
        );
        assert_eq!((eth0.tx_bytes, eth0.tx_packets, eth0.tx_errors, eth0.tx_dropped), (2000, 20, 3, 4));
    }

    #[test]
    fn interfaces_are_bounded_and_other_lines_are_skipped() {
        let many: String =
            (0..200).map(|n| format!("d{n}: 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16\n")).collect();
        assert_eq!(parse(&many).len(), INTERFACES_MAX);
        assert_eq!(parse("x: 1 2 3\nno figures\n: \n"), []);
    }
}
