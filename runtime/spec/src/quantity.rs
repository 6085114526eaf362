//! Quantities in Kubernetes' notation. Pure.

/// Longest number accepted, in characters. Kubernetes' own have fewer than 20 digits.
const NUMBER_CHARS_MAX: usize = 24;

/// Reads a quantity of Kubernetes, rounded up to a whole number (apimachinery `resource.Quantity`).
pub(crate) fn quantity(text: &str) -> Option<u64> {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, suffix) = text.split_at(end);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if number.len() > NUMBER_CHARS_MAX || fraction.contains('.') {
        return None;
    }
    let digits: u128 = format!("{whole}{fraction}").parse().ok()?;
    let decimal = |power: u32| 10_u128.checked_pow(power).map(|ten| (ten, 1));
    let (times, over) = match suffix {
        "n" => (1, 1_000_000_000),
        "u" => (1, 1_000_000),
        "m" => (1, 1_000),
        "" => (1, 1),
        "k" => decimal(3)?,
        "M" => decimal(6)?,
        "G" => decimal(9)?,
        "T" => decimal(12)?,
        "P" => decimal(15)?,
        "E" => decimal(18)?,
        "Ki" => (1 << 10, 1),
        "Mi" => (1 << 20, 1),
        "Gi" => (1 << 30, 1),
        "Ti" => (1 << 40, 1),
        "Pi" => (1 << 50, 1),
        "Ei" => (1 << 60, 1),
        _ => decimal(suffix.strip_prefix(['e', 'E'])?.parse().ok()?)?,
    };
    let over = 10_u128.pow(u32::try_from(fraction.len()).ok()?).checked_mul(over)?;
    u64::try_from(digits.checked_mul(times)?.div_ceil(over)).ok()
}
