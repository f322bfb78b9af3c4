//! The cipher around datagrams, where managers have TLS between them (`timebound_protocol::peer::seal`).

use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey};
use ring::rand::{SecureRandom, SystemRandom};
use timebound_protocol::peer::control::SealingKey;
use timebound_protocol::peer::seal::{self, Seen};

fn cipher(key: &SealingKey) -> Option<LessSafeKey> {
    UnboundKey::new(&CHACHA20_POLY1305, &key.0)
        .ok()
        .map(LessSafeKey::new)
}

/// Seals what this process sends.
pub(super) struct Sealer {
    cipher: LessSafeKey,
    pub(super) key: SealingKey,
    next: u64,
    buffer: Vec<u8>,
}

impl Sealer {
    /// With a key of its own.
    pub(super) fn new() -> std::io::Result<Self> {
        let mut bytes = [0; 32];
        let refused = |_| std::io::Error::other("the system has no random numbers");
        SystemRandom::new().fill(&mut bytes).map_err(refused)?;
        let key = SealingKey(bytes);
        let cipher = cipher(&key).ok_or_else(|| std::io::Error::other("the cipher refuses it"))?;
        Ok(Self {
            cipher,
            key,
            next: 0,
            buffer: Vec::new(),
        })
    }

    /// A datagram as it is sent; a second time it is another one.
    pub(super) fn seal(&mut self, datagram: &[u8]) -> &[u8] {
        let header = seal::header(self.next);
        let nonce = Nonce::assume_unique_for_key(seal::nonce(self.next));
        self.next += 1;
        self.buffer.clear();
        self.buffer.extend_from_slice(&header);
        self.buffer.extend_from_slice(datagram);
        let part = &mut self.buffer[seal::HEADER..];
        match self
            .cipher
            .seal_in_place_separate_tag(nonce, Aad::from(header), part)
        {
            Ok(tag) => self.buffer.extend_from_slice(tag.as_ref()),
            // A datagram is no message of 256 GB; and nothing leaves in clear.
            Err(_) => self.buffer.clear(),
        }
        &self.buffer
    }
}

/// Opens what a peer's process has sealed.
pub(super) struct Opener {
    cipher: LessSafeKey,
    key: SealingKey,
    seen: Seen,
}

impl Opener {
    pub(super) fn new(key: SealingKey) -> Option<Self> {
        Some(Self {
            cipher: cipher(&key)?,
            key,
            seen: Seen::default(),
        })
    }

    pub(super) fn has(&self, key: &SealingKey) -> bool {
        self.key == *key
    }

    /// The datagram in it; `None`: it is not genuine, or has come before.
    pub(super) fn open<'a>(&mut self, sealed: &'a mut [u8]) -> Option<&'a [u8]> {
        let number = seal::number(sealed).filter(|number| self.seen.is_new(*number))?;
        let (header, rest) = sealed.split_at_mut(seal::HEADER);
        let nonce = Nonce::assume_unique_for_key(seal::nonce(number));
        let opened = self.cipher.open_in_place(nonce, Aad::from(&*header), rest).ok()?;
        self.seen.note(number);
        Some(opened)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair() -> (Sealer, Opener) {
        let sealer = Sealer::new().unwrap();
        let opener = Opener::new(sealer.key.clone()).unwrap();
        (sealer, opener)
    }

    #[test]
    fn what_is_sealed_is_opened_once_in_any_order() {
        let (mut sealer, mut opener) = pair();
        let datagrams: Vec<Vec<u8>> = (0..200_usize).map(|n| vec![n as u8; n * 7]).collect();
        let mut sent: Vec<_> = datagrams
            .iter()
            .map(|one| (one.clone(), sealer.seal(one).to_vec()))
            .collect();
        sent.reverse();
        for (plain, sealed) in &sent {
            assert_eq!(sealed.len(), plain.len() + seal::OVERHEAD);
            assert_eq!(opener.open(&mut sealed.clone()), Some(&plain[..]));
            assert_eq!(opener.open(&mut sealed.clone()), None, "a replay");
        }
    }

    #[test]
    fn what_was_changed_is_not_opened_and_takes_nothing_from_what_was_not() {
        let (mut sealer, mut opener) = pair();
        let sealed = sealer.seal(b"forty-two bytes, or about as many as that").to_vec();
        for at in 0..sealed.len() {
            for bit in 0..8 {
                let mut changed = sealed.clone();
                changed[at] ^= 1 << bit;
                assert_eq!(opener.open(&mut changed), None);
            }
            assert_eq!(opener.open(&mut sealed[..at].to_vec()), None);
        }
        assert!(opener.open(&mut sealed.clone()).is_some());
    }

    #[test]
    fn each_process_has_a_key_of_its_own_and_hides_what_it_sends() {
        let (mut sealer, _) = pair();
        let (_, mut other) = pair();
        assert_eq!(other.open(&mut sealer.seal(b"x").to_vec()), None);
        let plain = b"what is secret";
        assert!(!sealer.seal(plain).windows(plain.len()).any(|part| part == plain));
    }
}
