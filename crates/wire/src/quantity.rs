//! Numbers with a unit, as the values of real-time attributes have them: `20 ms`, `1.5 Mbit/s`, `200 B`.
//!
//! A number is decimal, without sign or exponent; one space or none stands before the unit. What is finer than the unit of the result (ns,
//! bit/s, bytes) is rounded to the side that the caller names.

use thiserror::Error;

/// Where a value goes that lies between two.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rounding {
    /// What must not be promised too much of: deadlines, periods.
    Down,
    /// What must not be asked too little of: sizes, times of transmission, rates.
    Up,
}

/// Why a text is no quantity.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum NotAQuantity {
    #[error("there is no number before the unit")]
    NoNumber,
    #[error("the unit is missing; use {0}")]
    NoUnit(&'static str),
    #[error("the unit is unknown; use {0}")]
    UnknownUnit(&'static str),
    #[error("the number is too large")]
    TooLarge,
}

/// A kind of quantity: its units, each as so many of the smallest one.
#[derive(Debug)]
pub struct Kind {
    units: &'static [(&'static str, u64)],
    named: &'static str,
}

/// Nanoseconds.
pub const TIME: Kind = Kind {
    units: &[
        ("ns", 1),
        ("us", 1_000),
        ("µs", 1_000),
        ("μs", 1_000),
        ("ms", 1_000_000),
        ("s", 1_000_000_000),
    ],
    named: "ns, us, ms or s",
};

/// Bits per second.
pub const RATE: Kind = Kind {
    units: &[
        ("bit/s", 1),
        ("kbit/s", 1_000),
        ("Mbit/s", 1_000_000),
        ("Gbit/s", 1_000_000_000),
    ],
    named: "bit/s, kbit/s, Mbit/s or Gbit/s",
};

/// Bytes.
pub const SIZE: Kind = Kind {
    units: &[
        ("B", 1),
        ("kB", 1_000),
        ("KiB", 1 << 10),
        ("MB", 1_000_000),
        ("MiB", 1 << 20),
    ],
    named: "B, kB, KiB, MB or MiB",
};

/// Digits behind the point that count.
const MOST_DIGITS: u32 = 18;

impl Kind {
    /// Reads a number with its unit.
    ///
    /// # Errors
    /// See [`NotAQuantity`].
    pub fn read(&self, text: &str, rounding: Rounding) -> Result<u64, NotAQuantity> {
        let text = text.trim();
        let end = text
            .find(|c: char| !c.is_ascii_digit() && c != '.')
            .unwrap_or(text.len());
        let (number, unit) = (&text[..end], text[end..].trim_start());
        if unit.is_empty() {
            // Whether a number is there at all matters more.
            decimal(number, 1, rounding)?;
            return Err(NotAQuantity::NoUnit(self.named));
        }
        let Some((_, scale)) = self.units.iter().find(|(name, _)| *name == unit) else {
            decimal(number, 1, rounding)?;
            return Err(NotAQuantity::UnknownUnit(self.named));
        };
        decimal(number, *scale, rounding)
    }

    /// A number of so many of a unit of this kind that is not written down.
    ///
    /// # Errors
    /// The text is no number, or too large a one.
    pub fn read_bare(text: &str, scale: u64, rounding: Rounding) -> Result<u64, NotAQuantity> {
        decimal(text.trim(), scale, rounding)
    }

    /// The shortest text that [`Kind::read`] reads as this value.
    #[must_use]
    pub fn write(&self, value: u64) -> String {
        let fits = |(_, scale): &&(&str, u64)| value.is_multiple_of(*scale) && scale.is_power_of_ten();
        // Of names for the same unit the first one, which is ASCII.
        let largest = self
            .units
            .iter()
            .rev()
            .filter(|unit| value > 0 && fits(unit))
            .max_by_key(|(_, scale)| *scale);
        let (unit, scale) = largest.copied().unwrap_or(self.units[0]);
        format!("{} {unit}", value / scale)
    }
}

trait PowerOfTen {
    fn is_power_of_ten(&self) -> bool;
}

impl PowerOfTen for u64 {
    /// 1 is one, too.
    fn is_power_of_ten(&self) -> bool {
        self.checked_ilog10()
            .is_some_and(|digits| 10u64.pow(digits) == *self)
    }
}

/// `number * scale` as a whole number.
fn decimal(number: &str, scale: u64, rounding: Rounding) -> Result<u64, NotAQuantity> {
    let (whole, part) = number.split_once('.').unwrap_or((number, ""));
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if whole.is_empty() && part.is_empty() || !digits(whole) || !digits(part) {
        return Err(NotAQuantity::NoNumber);
    }
    let mut value = 0u128;
    for digit in whole.bytes() {
        value = value * 10 + u128::from(digit - b'0');
        if value > u128::from(u64::MAX) {
            return Err(NotAQuantity::TooLarge);
        }
    }
    let mut value = value * u128::from(scale);
    let (mut fraction, mut unit, mut beyond) = (0u128, 1u128, false);
    for (digit, place) in part.bytes().zip(0u32..) {
        if place < MOST_DIGITS {
            fraction = fraction * 10 + u128::from(digit - b'0');
            unit *= 10;
        } else {
            beyond |= digit != b'0';
        }
    }
    let scaled = fraction * u128::from(scale);
    value += scaled / unit;
    if rounding == Rounding::Up && (scaled % unit > 0 || beyond) {
        value += 1;
    }
    u64::try_from(value).map_err(|_| NotAQuantity::TooLarge)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn numbers_with_units() {
        let time = |text| TIME.read(text, Rounding::Down);
        assert_eq!(time("20 ms"), Ok(20_000_000));
        assert_eq!(time("20ms"), Ok(20_000_000));
        assert_eq!(time(" 1.5 s "), Ok(1_500_000_000));
        assert_eq!(time(".5 us"), Ok(500));
        assert_eq!(time("2 µs"), Ok(2_000));
        assert_eq!(SIZE.read("1.5 KiB", Rounding::Up), Ok(1_536));
        assert_eq!(RATE.read("0.3 kbit/s", Rounding::Up), Ok(300));
    }

    #[test]
    fn quantities_are_written_in_ascii() {
        assert_eq!(TIME.write(12_500_000), "12500 us");
        assert_eq!(TIME.write(0), "0 ns");
        assert_eq!(RATE.write(1_500_000), "1500 kbit/s");
    }

    #[test]
    fn what_lies_between_goes_to_the_safe_side() {
        assert_eq!(TIME.read("1.9 ns", Rounding::Down), Ok(1));
        assert_eq!(TIME.read("1.1 ns", Rounding::Up), Ok(2));
        assert_eq!(TIME.read("1.0000000000000000000001 ns", Rounding::Up), Ok(2));
        assert_eq!(TIME.read("1.0000000000000000000000 ns", Rounding::Up), Ok(1));
        assert_eq!(TIME.read("0.0000000009 s", Rounding::Down), Ok(0));
    }

    #[test]
    fn what_is_no_quantity_says_why() {
        let time = |text| TIME.read(text, Rounding::Down);
        for text in ["", "ms", ".", "1.2.3 ms", "-1 ms", "+1 ms", "1e3 ms", " "] {
            assert!(time(text).is_err(), "{text:?}");
        }
        assert_eq!(time("20"), Err(NotAQuantity::NoUnit("ns, us, ms or s")));
        assert_eq!(
            time("20 minutes"),
            Err(NotAQuantity::UnknownUnit("ns, us, ms or s"))
        );
        assert_eq!(time("20 MS"), Err(NotAQuantity::UnknownUnit("ns, us, ms or s")));
        assert_eq!(time("99999999999999999999 ns"), Err(NotAQuantity::TooLarge));
        assert_eq!(time("99999999999 s"), Err(NotAQuantity::TooLarge));
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_again(value in any::<u64>()) {
            for kind in [&TIME, &RATE, &SIZE] {
                for rounding in [Rounding::Up, Rounding::Down] {
                    prop_assert_eq!(kind.read(&kind.write(value), rounding), Ok(value));
                }
            }
        }

        #[test]
        fn no_text_is_too_much(text in any::<String>()) {
            for kind in [&TIME, &RATE, &SIZE] {
                let (down, up) = (kind.read(&text, Rounding::Down), kind.read(&text, Rounding::Up));
                if let (Ok(down), Ok(up)) = (down, up) {
                    prop_assert!(up - down <= 1);
                }
            }
        }

        #[test]
        fn a_decimal_lies_between_its_roundings(whole in 0u64..1_000_000, part in 0u64..1_000_000) {
            let text = format!("{whole}.{part:06} us");
            let exact = u128::from(whole) * 1_000 * 1_000_000 + u128::from(part) * 1_000;
            let down = u128::from(TIME.read(&text, Rounding::Down).unwrap());
            let up = u128::from(TIME.read(&text, Rounding::Up).unwrap());
            prop_assert!(down * 1_000_000 <= exact && exact <= up * 1_000_000 && up - down <= 1);
        }
    }
}
