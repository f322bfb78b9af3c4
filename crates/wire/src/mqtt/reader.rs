//! The data types of MQTT (1.5), read from the front.

use super::Malformed;

#[derive(Debug, Clone, Copy)]
pub(super) struct Reader<'a> {
    pub(super) rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(super) const fn new(rest: &'a [u8]) -> Self {
        Self { rest }
    }
    pub(super) fn bytes(&mut self, count: usize) -> Result<&'a [u8], Malformed> {
        let (taken, rest) = self.rest.split_at_checked(count).ok_or(Malformed::Short)?;
        self.rest = rest;
        Ok(taken)
    }
    pub(super) fn byte(&mut self) -> Result<u8, Malformed> {
        Ok(self.bytes(1)?[0])
    }
    pub(super) fn two(&mut self) -> Result<u16, Malformed> {
        let bytes = self.bytes(2)?;
        Ok(u16::from_be_bytes([bytes[0], bytes[1]]))
    }
    pub(super) fn four(&mut self) -> Result<u32, Malformed> {
        let bytes = self.bytes(4)?;
        Ok(u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
    }
    pub(super) fn binary(&mut self) -> Result<&'a [u8], Malformed> {
        let length = self.two()?;
        self.bytes(usize::from(length))
    }
    pub(super) fn text(&mut self) -> Result<&'a str, Malformed> {
        let text = std::str::from_utf8(self.binary()?).map_err(|_| Malformed::Text)?;
        if text.contains('\0') {
            return Err(Malformed::Text);
        }
        Ok(text)
    }
    pub(super) fn integer(&mut self) -> Result<u32, Malformed> {
        let mut value = 0;
        for place in 0..4 {
            let byte = self.byte()?;
            value |= u32::from(byte & 0x7f) << (7 * place);
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(Malformed::Integer)
    }
}
