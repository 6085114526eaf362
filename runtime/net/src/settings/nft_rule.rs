//! The expressions of one nftables rule: do they mean the same in a guest as on the node, and what extra data
//! does the kernel need? Pure. Numbers are those of linux/netfilter/nf_tables.h.

use netlink_packet_core::NlasIterator;

use super::attribute::{attribute, be32, nested, text, word};

/// One expression: its name and its attributes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Expression<'a> {
    name: String,
    attributes: &'a [u8],
}

/// The kind of value loaded by an expression for the next one to compare.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Loaded {
    /// The index of an interface.
    Interface,
    /// The number of the protocol above IP.
    Protocol,
    Other,
}

/// `NFT_META_*`.
mod meta {
    pub(super) const IIF: u32 = 4;
    pub(super) const OIF: u32 = 5;
    pub(super) const L4PROTO: u32 = 16;
    pub(super) const CGROUP: u32 = 23;
    pub(super) const SDIF: u32 = 33;
}

/// The loopback has this index in every namespace.
const LOOPBACK: u32 = 1;

/// Parses the expressions of `NFTA_RULE_EXPRESSIONS`.
pub(super) fn expressions(list: &[u8]) -> Vec<Expression<'_>> {
    let all = NlasIterator::new(list).filter_map(Result::ok);
    all.map(|element| {
        let attributes = &element.into_inner()[4..usize::from(element.length())];
        let name = text(attributes, 1).unwrap_or_default();
        Expression { name, attributes: attribute(attributes, 2).unwrap_or_default() }
    })
    .collect()
}

/// Returns the reason if a rule with these expressions would mean something else in a guest, or nothing.
/// Interface numbers, cgroups and flow tables belong to one kernel; interface names, users and marks do not.
pub(super) fn obstacle(expressions: &[Expression<'_>]) -> Option<String> {
    let mut before = Loaded::Other;
    for expression in expressions {
        if before == Loaded::Interface && !expression.compares_with_loopback() {
            return Some(BY_INDEX.to_owned());
        }
        before = expression.loaded();
        match (&*expression.name, expression.number(1), expression.number(2)) {
            ("fwd" | "dup", ..) => return Some(BY_INDEX.to_owned()),
            ("flow_offload", ..) => return Some("it uses a flow table, and guests have none".to_owned()),
            // The key is the first attribute of `socket`, and the second of `meta`; NFT_SOCKET_CGROUPV2 is 3.
            ("meta", _, Some(meta::CGROUP)) | ("socket", Some(3), _) => return Some(BY_CGROUP.to_owned()),
            ("match", ..) if text(expression.attributes, 1).as_deref() == Some("cgroup") => {
                return Some(BY_CGROUP.to_owned());
            }
            _ => {}
        }
    }
    (before == Loaded::Interface).then(|| BY_INDEX.to_owned())
}

const BY_INDEX: &str = "a rule matches an interface by its number, and the number differs in the guest; iifname and oifname match by name";
const BY_CGROUP: &str = "a rule matches a cgroup of the node, and the guest does not have it";

/// Builds `NFTA_RULE_COMPAT` for a rule with iptables matches or targets: the rule's protocol or 0, and a
/// flag for inversion (all other protocols). The kernel uses it to check if such a match fits, as in an
/// iptables rule.
pub(super) fn compatibility(family: u8, expressions: &[Expression<'_>]) -> Vec<u8> {
    if !expressions.iter().any(|expression| matches!(&*expression.name, "match" | "target")) {
        return Vec::new();
    }
    /// `NFTA_RULE_COMPAT`, its attributes, and `NFT_RULE_COMPAT_F_INV`.
    const COMPAT: u16 = 5;
    const PROTOCOL: u16 = 1;
    const FLAGS: u16 = 2;
    const INVERTED: u32 = 2;
    let (mut protocol, mut flags) = (0, 0);
    for pair in expressions.windows(2) {
        if pair[0].loads_protocol(family)
            && let Some((operation, [number])) = pair[1].comparison()
        {
            (protocol, flags) = (u32::from(*number), if operation == NOT_EQUAL { INVERTED } else { 0 });
            break;
        }
    }
    nested(COMPAT, &[word(PROTOCOL, protocol), word(FLAGS, flags)].concat())
}

/// `NFT_CMP_EQ`, `NFT_CMP_NEQ`.
const EQUAL: u32 = 0;
const NOT_EQUAL: u32 = 1;

impl Expression<'_> {
    /// Returns a big-endian word from the attributes.
    fn number(&self, kind: u16) -> Option<u32> {
        attribute(self.attributes, kind).filter(|value| value.len() == 4).and_then(be32)
    }

    fn loaded(&self) -> Loaded {
        // NFTA_META_DREG is present if the value is loaded, and absent if it is set.
        match (&*self.name, self.number(1), self.number(2)) {
            ("meta", Some(_), Some(meta::IIF | meta::OIF | meta::SDIF)) => Loaded::Interface,
            ("meta", Some(_), Some(meta::L4PROTO)) => Loaded::Protocol,
            _ => Loaded::Other,
        }
    }

    /// Returns true if the expression loads the protocol above IP, from the packet's metadata or from its
    /// header.
    fn loads_protocol(&self, family: u8) -> bool {
        // NFTA_PAYLOAD_BASE, _OFFSET and _LEN; base 1 is the network header. Families 2 and 10 are IPv4 and
        // IPv6.
        let place = (self.number(2), self.number(3), self.number(4));
        let offset = if family == 10 { 6 } else { 9 };
        self.loaded() == Loaded::Protocol
            || (self.name == "payload" && place == (Some(1), Some(offset), Some(1)))
    }

    /// Returns the operation and the value of a comparison for equality.
    fn comparison(&self) -> Option<(u32, &[u8])> {
        let operation = self.number(2).filter(|operation| [EQUAL, NOT_EQUAL].contains(operation))?;
        let value = attribute(attribute(self.attributes, 3)?, 1)?;
        (self.name == "cmp").then_some((operation, value))
    }

    fn compares_with_loopback(&self) -> bool {
        self.comparison().is_some_and(|(_, value)| value == LOOPBACK.to_ne_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TCP: u8 = 6;

    fn padded(kind: u16, value: &[u8]) -> Vec<u8> {
        let mut attribute = nested(kind, value);
        attribute.resize(attribute.len().next_multiple_of(4), 0);
        attribute
    }

    fn expression(name: &str, attributes: &[Vec<u8>]) -> Vec<u8> {
        let name = padded(1, format!("{name}\0").as_bytes());
        nested(1, &[name, nested(2, &attributes.concat())].concat())
    }

    fn meta(key: u32) -> Vec<u8> {
        expression("meta", &[word(1, 1), word(2, key)])
    }

    fn cmp(operation: u32, value: &[u8]) -> Vec<u8> {
        expression("cmp", &[word(1, 1), word(2, operation), nested(3, &padded(1, value))])
    }

    fn found(rule: &[Vec<u8>]) -> Option<String> {
        obstacle(&expressions(&rule.concat()))
    }

    #[test]
    fn rules_by_names_users_and_marks_go_into_a_guest() {
        let owner = expression("match", &[padded(1, b"owner\0"), word(2, 1)]);
        assert_eq!(found(&[meta(6), cmp(EQUAL, b"eth0\0"), meta(10), cmp(EQUAL, &[0; 4]), owner]), None);
        assert_eq!(found(&[meta(meta::IIF), cmp(NOT_EQUAL, &1u32.to_ne_bytes())]), None);
        assert_eq!(found(&[expression("redir", &[])]), None);
    }

    #[test]
    fn a_rule_by_an_interfaces_number_does_not_go() {
        for rule in [
            vec![meta(meta::OIF), cmp(EQUAL, &2u32.to_ne_bytes())],
            vec![meta(meta::IIF), expression("lookup", &[])],
            vec![meta(meta::SDIF)],
            vec![expression("fwd", &[])],
        ] {
            assert!(found(&rule).unwrap().contains("iifname"), "{rule:?}");
        }
        // Setting a mark loads no value.
        assert_eq!(found(&[expression("meta", &[word(2, 3), word(3, 1)])]), None);
    }

    #[test]
    fn a_rule_by_a_cgroup_does_not_go() {
        for rule in [
            meta(meta::CGROUP),
            expression("socket", &[word(1, 3), word(2, 1)]),
            expression("match", &[padded(1, b"cgroup\0")]),
        ] {
            assert!(found(&[rule]).unwrap().contains("cgroup"));
        }
    }

    #[test]
    fn the_protocol_of_a_rule_of_iptables_is_found_where_it_is_compared() {
        let target = expression("target", &[padded(1, b"REDIRECT\0")]);
        let compat = |family, rule: &[Vec<u8>]| {
            let made = compatibility(family, &expressions(&rule.concat()));
            let inner = attribute(&made, 5).map(<[u8]>::to_vec)?;
            Some((be32(attribute(&inner, 1)?)?, be32(attribute(&inner, 2)?)?))
        };
        let rule = |load: Vec<u8>, operation| vec![load, cmp(operation, &[TCP]), target.clone()];
        assert_eq!(compat(2, &rule(meta(meta::L4PROTO), EQUAL)), Some((6, 0)));
        assert_eq!(compat(2, &rule(meta(meta::L4PROTO), NOT_EQUAL)), Some((6, 2)));
        let header = |offset| expression("payload", &[word(1, 1), word(2, 1), word(3, offset), word(4, 1)]);
        assert_eq!(compat(2, &rule(header(9), EQUAL)), Some((6, 0)));
        assert_eq!(compat(10, &rule(header(6), EQUAL)), Some((6, 0)));
        // The hop limit of IPv6 is where IPv4 has its protocol.
        assert_eq!(compat(10, &rule(header(7), EQUAL)), Some((0, 0)));
        assert_eq!(compat(2, &[target]), Some((0, 0)));
        assert_eq!(compat(2, &[meta(meta::L4PROTO), cmp(EQUAL, &[TCP])]), None);
    }

    #[test]
    fn expressions_that_make_no_sense_are_passed_on_for_the_kernel_to_refuse() {
        assert_eq!(expressions(&[9, 0, 1]), []);
        assert_eq!(found(&[nested(1, &[1, 2, 3, 4])]), None);
    }
}
