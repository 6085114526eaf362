//! The details of a route that the guest's route does not have: `route` carries a route's destination, one
//! next hop, metric, source, MTU and segment size. Pure.

use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteHeader, RouteMessage, RouteMetric, RouteProtocol, RouteType,
};

use super::setting::Setting;

/// Returns the details of a route of the main table that the guest will lack.
pub(super) fn details(tool: &'static str, message: &RouteMessage) -> Vec<Setting> {
    let header = &message.header;
    // The guest asks routers itself.
    let is_guests = header.kind == RouteType::Unicast
        && header.table == RouteHeader::RT_TABLE_MAIN
        && header.protocol != RouteProtocol::Ra;
    if !is_guests {
        return Vec::new();
    }
    let mut details = Vec::new();
    if header.tos != 0 {
        details.push("type of service");
    }
    for attribute in &message.attributes {
        match attribute {
            RouteAttribute::MultiPath(hops) if hops.len() > 1 => details.push("further next hops"),
            RouteAttribute::Metrics(metrics) => details.extend(metrics.iter().filter_map(metric)),
            _ => {}
        }
    }
    let destination = destination(message);
    let setting = |detail| Setting::RouteDetail { tool, destination: destination.clone(), detail };
    details.into_iter().map(setting).collect()
}

/// The destination of a route with its prefix length, as `ip route` writes it.
pub(super) fn destination(message: &RouteMessage) -> String {
    let to = message.attributes.iter().find_map(|attribute| match attribute {
        RouteAttribute::Destination(RouteAddress::Inet(ip)) => Some(ip.to_string()),
        RouteAttribute::Destination(RouteAddress::Inet6(ip)) => Some(ip.to_string()),
        _ => None,
    });
    to.map_or("default".to_owned(), |ip| format!("{ip}/{}", message.header.destination_prefix_length))
}

/// The name of a metric in `ip route`, if the guest's route does not have it.
fn metric(metric: &RouteMetric) -> Option<&'static str> {
    Some(match metric {
        RouteMetric::Mtu(_) | RouteMetric::Advmss(_) => return None,
        RouteMetric::Lock(_) => "lock of a metric",
        RouteMetric::Window(_) => "window",
        RouteMetric::Rtt(_) => "rtt",
        RouteMetric::RttVar(_) => "rttvar",
        RouteMetric::SsThresh(_) => "ssthresh",
        RouteMetric::Cwnd(_) => "cwnd",
        RouteMetric::Reordering(_) => "reordering",
        RouteMetric::Hoplimit(_) => "hoplimit",
        RouteMetric::InitCwnd(_) => "initcwnd",
        RouteMetric::Features(_) => "features",
        RouteMetric::RtoMin(_) => "rto_min",
        RouteMetric::InitRwnd(_) => "initrwnd",
        RouteMetric::QuickAck(_) => "quickack",
        RouteMetric::CcAlgo(_) => "congctl",
        RouteMetric::FastopenNoCookie(_) => "fastopen_no_cookie",
        _ => "unknown metric",
    })
}

#[cfg(test)]
mod tests {
    use netlink_packet_route::route::RouteNextHop;

    use super::*;

    fn message(attributes: Vec<RouteAttribute>) -> RouteMessage {
        let mut message = RouteMessage::default();
        message.header.table = RouteHeader::RT_TABLE_MAIN;
        message.header.kind = RouteType::Unicast;
        message.attributes = attributes;
        message
    }

    fn lines(message: &RouteMessage) -> Vec<String> {
        details("ip", message).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn what_a_route_has_beyond_that_of_the_guest_is_named() {
        let metrics = [RouteMetric::Mtu(1400), RouteMetric::InitCwnd(20), RouteMetric::Advmss(1300)];
        let hops = vec![RouteNextHop::default(), RouteNextHop::default()];
        let mut all = message(vec![RouteAttribute::Metrics(metrics.into()), RouteAttribute::MultiPath(hops)]);
        assert_eq!(
            lines(&all),
            [
                "the initcwnd of the route default of `ip route`",
                "the further next hops of the route default of `ip route`"
            ]
        );
        all.header.tos = 16;
        all.attributes = vec![RouteAttribute::Destination(RouteAddress::Inet("10.0.0.0".parse().unwrap()))];
        all.header.destination_prefix_length = 8;
        assert_eq!(lines(&all), ["the type of service of the route 10.0.0.0/8 of `ip route`"]);
    }

    #[test]
    fn plain_routes_and_those_that_no_guest_gets_have_no_details() {
        let one_hop = RouteAttribute::MultiPath(vec![RouteNextHop::default()]);
        assert_eq!(
            lines(&message(vec![RouteAttribute::Metrics(vec![RouteMetric::Mtu(1400)]), one_hop])),
            [""; 0]
        );
        let mut advertised = message(vec![RouteAttribute::Metrics(vec![RouteMetric::Hoplimit(64)])]);
        advertised.header.protocol = RouteProtocol::Ra;
        assert_eq!(lines(&advertised), [""; 0]);
    }
}
