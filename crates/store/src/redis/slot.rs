//! The hash slot of a key: CRC16 (XMODEM) of the key, or of its hash tag, modulo 16384.

/// How many slots a cluster has.
pub(super) const SLOTS: usize = 16384;

const TABLE: [u16; 256] = table();

const fn table() -> [u16; 256] {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let mut crc = (byte as u16) << 8;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 0x8000 != 0 { (crc << 1) ^ 0x1021 } else { crc << 1 };
            bit += 1;
        }
        table[byte] = crc;
        byte += 1;
    }
    table
}

/// The slot of `key`. Only the first `{` counts, and only with a `}` behind something after it.
pub(super) fn slot(key: &[u8]) -> u16 {
    let crc =
        tag(key).iter().fold(0_u16, |crc, byte| (crc << 8) ^ TABLE[usize::from((crc >> 8) as u8 ^ byte)]);
    crc % SLOTS as u16
}

fn tag(key: &[u8]) -> &[u8] {
    let Some(open) = key.iter().position(|byte| *byte == b'{') else { return key };
    let rest = &key[open + 1..];
    match rest.iter().position(|byte| *byte == b'}') {
        Some(close) if close > 0 => &rest[..close],
        _ => key,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_those_of_cluster_keyslot() {
        // As `CLUSTER KEYSLOT` answers.
        for (key, expected) in [
            ("123456789", 12739),
            ("detection_queue", 2383),
            ("{detection_queue}:leases", 2383),
            ("foo{}{bar}", 8363),
            ("foo{{bar}}zap", 4015),
            ("foo{bar}{zap}", 5061),
            ("", 0),
            ("{", 4092),
        ] {
            assert_eq!(slot(key.as_bytes()), expected, "{key}");
        }
    }
}
