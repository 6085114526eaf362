//! Turns dumped tables into messages to create the same tables in another kernel. Pure; `netfilter.rs` reads,
//! and the agent sends. A table is transferred whole or not at all: half a firewall is a different firewall.
//!
//! A dumped object is nearly the message to create it. State of the first kernel is left out (handles,
//! positions, use counts), and so are flags of the creating socket or batch. Two things are added because the
//! kernel requires them: a number for each set, and the protocol for rules with iptables parts (the kernel
//! does not dump it). Attributes are numbered as in linux/netfilter/nf_tables.h.

use netlink_packet_core::{NLM_F_APPEND, NLM_F_CREATE, NLM_F_REQUEST};

use super::{
    attribute::{attribute, be32, kept, text, word},
    netfilter::{NFTABLES, Object, Ruleset, TABLE, message},
    nft_rule,
};

/// A table by its family and its name.
pub(super) type TableKey = (u8, String);

/// `NFTA_TABLE_FLAGS`.
const TABLE_FLAGS: u16 = 2;
/// `NFT_TABLE_F_DORMANT`; the other flags concern an owner.
const DORMANT: u32 = 1;
/// `NFTA_SET_ID`.
const SET_ID: u16 = 10;
/// `NFTA_RULE_EXPRESSIONS`.
const EXPRESSIONS: u16 = 4;

/// One kind of object: the number of its creation message, and its essential attributes.
struct Kind {
    number: u16,
    flags: u16,
    kept: &'static [u16],
}

const TABLES: Kind = Kind { number: 0, flags: 0, kept: &[1, 6] };
/// Name, hook, policy, type and user data. A chain without its flags is bound to no rule; rules then jump to
/// it by name.
const CHAINS: Kind = Kind { number: 3, flags: 0, kept: &[1, 3, 4, 5, 7, 12] };
const SETS: Kind = Kind { number: 9, flags: 0, kept: &[1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 12, 13, 15, 17, 18] };
const OBJECTS: Kind = Kind { number: 18, flags: 0, kept: &[1, 2, 3, 4, 8] };
const ELEMENTS: Kind = Kind { number: 12, flags: 0, kept: &[1, 2, 3] };
const RULES: Kind = Kind { number: 6, flags: NLM_F_APPEND, kept: &[1, 2, 4, 7] };

/// A table with its creation messages, or the reason for having none.
pub(super) type TableMessages = (TableKey, Result<Vec<u8>, String>);

/// Returns the messages of each table in the kernel's order: among chains of equal priority, the first
/// created runs first.
pub(super) fn messages(ruleset: &Ruleset) -> Vec<TableMessages> {
    let made = ruleset.tables.iter().map(|table| {
        let key = (table.family, text(&table.attributes, TABLE).unwrap_or_default());
        let messages = of_table(ruleset, table, &key);
        (key, messages)
    });
    made.collect()
}

/// Returns the messages in dependency order. Rules name chains and sets, and elements name chains and
/// objects. A set takes no more elements once a rule uses it.
fn of_table(ruleset: &Ruleset, table: &Object, key: &TableKey) -> Result<Vec<u8>, String> {
    let in_table =
        |object: &&Object| object.family == key.0 && text(&object.attributes, TABLE).as_ref() == Some(&key.1);
    let flags = attribute(&table.attributes, TABLE_FLAGS).and_then(be32).unwrap_or(0) & DORMANT;
    let mut batch = TABLES.message(table, &word(TABLE_FLAGS, flags));
    for chain in ruleset.chains.iter().filter(in_table) {
        batch.extend(CHAINS.message(chain, &[]));
    }
    for (set, number) in ruleset.sets.iter().filter(in_table).zip(1..) {
        batch.extend(SETS.message(set, &word(SET_ID, number)));
    }
    for object in ruleset.objects.iter().filter(in_table) {
        batch.extend(OBJECTS.message(object, &[]));
    }
    for elements in ruleset.elements.iter().filter(in_table) {
        batch.extend(ELEMENTS.message(elements, &[]));
    }
    for rule in ruleset.rules.iter().filter(in_table) {
        let expressions = nft_rule::expressions(attribute(&rule.attributes, EXPRESSIONS).unwrap_or_default());
        if let Some(obstacle) = nft_rule::obstacle(&expressions) {
            return Err(obstacle);
        }
        batch.extend(RULES.message(rule, &nft_rule::compatibility(rule.family, &expressions)));
    }
    Ok(batch)
}

impl Kind {
    /// Builds the creation message of the object, with these additional attributes.
    fn message(&self, object: &Object, added: &[u8]) -> Vec<u8> {
        let mut attributes = kept(&object.attributes, self.kept);
        attributes.extend(added);
        let flags = NLM_F_REQUEST | NLM_F_CREATE | self.flags;
        message(NFTABLES | self.number, flags, 0, object.family, &attributes)
    }
}

#[cfg(test)]
mod tests {
    use netlink_packet_core::NlasIterator;

    use super::{super::attribute::nested, *};

    fn string(kind: u16, text: &str) -> Vec<u8> {
        let mut value = text.as_bytes().to_vec();
        value.push(0);
        let mut attribute = nested(kind, &value);
        attribute.resize(attribute.len().next_multiple_of(4), 0);
        attribute
    }

    fn object(family: u8, attributes: &[Vec<u8>]) -> Object {
        Object { family, attributes: attributes.concat() }
    }

    /// Types, flags and attributes of the messages in a batch.
    fn parts(mut batch: &[u8]) -> Vec<(u16, u16, Vec<u16>)> {
        let mut parts = Vec::new();
        while !batch.is_empty() {
            let length = u32::from_ne_bytes(*batch.first_chunk().unwrap()) as usize;
            let half = |at: usize| u16::from_ne_bytes([batch[at], batch[at + 1]]);
            let kinds = NlasIterator::new(&batch[20..length]).map(|found| found.unwrap().kind()).collect();
            parts.push((half(4), half(6), kinds));
            batch = &batch[length.next_multiple_of(4)..];
        }
        parts
    }

    #[test]
    fn a_table_is_made_in_an_order_in_which_nothing_is_missing_and_without_marks_of_its_kernel() {
        let table = object(2, &[string(1, "nat"), word(2, 6), word(3, 9), nested(4, &[0; 8])]);
        let chain =
            object(2, &[string(1, "nat"), nested(2, &[0; 8]), string(3, "out"), word(6, 1), word(10, 1)]);
        let set =
            object(2, &[string(1, "nat"), string(2, "__set0"), word(3, 3), word(5, 4), nested(16, &[0; 8])]);
        let rule = object(2, &[string(1, "nat"), string(2, "out"), nested(3, &[0; 8]), nested(6, &[0; 8])]);
        let other = object(10, &[string(1, "nat"), string(3, "out")]);
        let ruleset = Ruleset {
            tables: vec![table],
            chains: vec![other, chain],
            sets: vec![set],
            elements: vec![object(2, &[string(1, "nat"), string(2, "__set0")])],
            objects: vec![object(2, &[string(1, "nat"), string(2, "count"), word(6, 0)])],
            rules: vec![rule],
        };
        let made = messages(&ruleset);
        let [(_, Ok(batch))] = &made[..] else { panic!("{made:?}") };
        let create = NLM_F_REQUEST | NLM_F_CREATE;
        assert_eq!(
            parts(batch),
            [
                (0xa00, create, vec![1, 2]),
                (0xa03, create, vec![1, 3]),
                (0xa09, create, vec![1, 2, 3, 5, 10]),
                (0xa12, create, vec![1, 2]),
                (0xa0c, create, vec![1, 2]),
                (0xa06, create | NLM_F_APPEND, vec![1, 2]),
            ]
        );
        // Flags 6 belong to an owner, and its socket is not there.
        assert!(batch[..64].windows(8).any(|bytes| bytes == word(TABLE_FLAGS, 0)));
    }

    #[test]
    fn a_table_with_one_rule_that_cannot_go_does_not_go_and_the_others_do() {
        let table = |name: &str| object(1, &[string(1, name)]);
        let expression = [string(1, "flow_offload"), nested(2, &[])].concat();
        let rule = object(1, &[string(1, "a"), nested(4, &nested(1, &expression))]);
        let ruleset =
            Ruleset { tables: vec![table("a"), table("b")], rules: vec![rule], ..Ruleset::default() };
        let made = messages(&ruleset);
        assert_eq!(made[0].0, (1, "a".to_owned()));
        assert!(made[0].1.as_ref().unwrap_err().contains("flow table"));
        assert!(made[1].1.is_ok());
    }
}
