//! Numbers of bytes, as Kubernetes writes them (`k8s.io/apimachinery`, `api/resource`).

/// A number of bytes in Kubernetes' notation, in the largest unit without a remainder.
pub(super) fn quantity(bytes: u64) -> String {
    let units = [(40, "Ti"), (30, "Gi"), (20, "Mi"), (10, "Ki")];
    let unit = units.into_iter().find(|(shift, _)| bytes > 0 && bytes.trailing_zeros() >= *shift);
    unit.map_or_else(|| bytes.to_string(), |(shift, unit)| format!("{}{unit}", bytes >> shift))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quantity_has_the_largest_unit_that_divides_it() {
        let sizes = [1 << 40, 3 << 30, 80 << 20, 1536 << 20, 5 << 10, 7, 0];
        assert_eq!(sizes.map(quantity), ["1Ti", "3Gi", "80Mi", "1536Mi", "5Ki", "7", "0"]);
    }
}
