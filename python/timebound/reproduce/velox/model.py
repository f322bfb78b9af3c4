"""Equations 2 to 6 of the Velox paper with exact fractions: as printed, and the reading that queueing theory allows.

Source: Hakiri, Berthou, Gokhale, Schmidt, Gayraud, "Supporting End-to-end Scalability and Real-time Event Dissemination in
the OMG Data Distribution Service over Wide Area Networks", JSS 86 (10), 2013, sections 2.1.3 and 3.2. Every time here is a
**mean** in microseconds: Poisson arrivals and exponential service have no greatest value, so nothing here is a bound. The paper is
wrong in places; `defects` names each with both numbers.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

PUBLISHED = Path(__file__).parent / "published.csv"
MICROS = 1_000_000


@dataclass(frozen=True, slots=True)
class Printed:
    """A number as the paper prints it: `digits` after the point."""

    id: str
    where: str
    unit: str
    text: str
    quantity: str

    @property
    def value(self) -> Fraction:
        return Fraction(self.text)

    @property
    def digits(self) -> int:
        return len(self.text.partition(".")[2])


def published(path: Path = PUBLISHED) -> dict[str, Printed]:
    """The numbers of tables 1 and 2 and of section 3.2, by id."""
    with path.open(encoding="utf-8", newline="") as file:
        rows = csv.DictReader(file)
        return {
            row["id"]: Printed(row["id"], row["where"], row["unit"], row["printed"], row["quantity"]) for row in rows
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameters:
    """What the model is fed with; the defaults are the paper's. Times in microseconds, rates in packets per second."""

    arrivals_per_s: Fraction = Fraction(12_000)
    """lambda (section 3.2.2)"""
    services_per_s: Fraction = Fraction(125_000)
    """mu: 1/mu is 8 us (section 3.2.2)"""
    hops: int = 2
    packets: int = 1
    packet_bits: int = 8192
    link_bps: int = 100_000_000
    processing_us: Fraction = Fraction(5)
    propagation_us: Fraction = Fraction(1, 2)
    appmid_us: Fraction = Fraction("1.6")
    midapp_us: Fraction = Fraction(42)

    def __post_init__(self) -> None:
        """Raises `ValueError` with the name of the parameter where one makes no sense."""
        for name in ("arrivals_per_s", "services_per_s", "hops", "packets", "packet_bits", "link_bps"):
            if getattr(self, name) <= 0:
                raise ValueError(f"{name} must be more than zero")
        for name in ("processing_us", "propagation_us", "appmid_us", "midapp_us"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} cannot be negative")
        if self.arrivals_per_s >= self.services_per_s:
            raise ValueError("lambda must be below mu: the queue of an M/M/1 grows without limit otherwise")

    @property
    def is_papers_packet(self) -> bool:
        """Is it the packet and the link of table 1, for which the paper prints a transmission time of its own?"""
        return (self.packet_bits, self.link_bps) == (8192, 100_000_000)

    @property
    def rho(self) -> Fraction:
        """Utilisation of the CPU."""
        return self.arrivals_per_s / self.services_per_s

    @property
    def inter_arrival_us(self) -> Fraction:
        return MICROS / self.arrivals_per_s

    @property
    def service_us(self) -> Fraction:
        return MICROS / self.services_per_s

    @property
    def transmission_us(self) -> Fraction:
        return Fraction(self.packet_bits * MICROS, self.link_bps)

    @property
    def link_utilisation(self) -> Fraction:
        """Share of a link's time that the packets need, as the paper counts their bits."""
        return self.arrivals_per_s * self.packet_bits / self.link_bps


def network_us(parameters: Parameters, transmission_us: Fraction) -> Fraction:
    """Eq. 6: T_tot = M L + N T + (M-1) T + (M-1) P. No term for waiting at a link."""
    p = parameters
    between = p.hops - 1
    return p.hops * p.propagation_us + (p.packets + between) * transmission_us + between * p.processing_us


def as_printed(parameters: Parameters) -> dict[str, Fraction]:
    """Every quantity by the paper's own formulas, unsafe and wrong where `defects` says so; times in us.

    Intermediate figures are rounded as the paper rounds them before it adds them up (83.3 and not 83.333), and for the paper's packet
    and link its own 82.92 us is taken.
    """
    p = parameters
    waiting = rounded(p.inter_arrival_us, 1)
    transmission = published()["transmission"].value if p.is_papers_packet else p.transmission_us
    network = network_us(p, transmission)
    rates = p.arrivals_per_s + p.services_per_s
    return {
        "rho": p.rho,
        # Below eq. 3: P01 = lambda and P10 = mu, but then pi_0 = lambda/(lambda+mu), against eq. 2.
        "pi_0": p.arrivals_per_s / rates,
        "pi_1": p.services_per_s / rates,
        # Below eq. 5: N = 1, so T = N/lambda = 1/lambda.
        "waiting": waiting,
        # Table 2: one 1/lambda for T_pub + T_sub, one 1/mu for P + P1.
        "pub_and_sub": waiting,
        "both_cpus": p.service_us,
        "transmission": transmission,
        "network": network,
        "total": p.midapp_us + p.appmid_us + waiting + p.service_us + network,
        # Eq. 4 with the same times for each of its terms.
        "total_eq_4": p.midapp_us + p.appmid_us + 2 * waiting + 2 * p.service_us + network,
    }


def corrected(parameters: Parameters) -> dict[str, Fraction]:
    """The same quantities as queueing theory has them; times in us, means all the same.

    Each end is an M/M/1: its sojourn time 1/(mu - lambda), service included, takes the place of T_pub + P and of P1 + T_sub in eq. 4.
    """
    p = parameters
    sojourn = MICROS / (p.services_per_s - p.arrivals_per_s)
    network = network_us(p, p.transmission_us)
    rates = p.arrivals_per_s + p.services_per_s
    found = {
        "rho": p.rho,
        "pi_0": p.services_per_s / rates,
        "pi_1": p.arrivals_per_s / rates,
        "waiting": sojourn - p.service_us,
        "service": p.service_us,
        # Two ends, each with the wait that the sojourn time leaves beside the service: with both_cpus they are two sojourn times.
        "pub_and_sub": 2 * (sojourn - p.service_us),
        "both_cpus": 2 * p.service_us,
        "sojourn": sojourn,
        "customers": p.rho / (1 - p.rho),
        "transmission": p.transmission_us,
        "network": network,
        "total": p.midapp_us + p.appmid_us + 2 * sojourn + network,
    }
    if p.link_utilisation < 1:
        # Pollaczek-Khinchine for constant service (M/D/1): W = rho S / (2 (1 - rho)).
        load = p.link_utilisation
        found["link_waiting"] = load * p.transmission_us / (2 * (1 - load))
    return found


def rounded(value: Fraction, digits: int) -> Fraction:
    """To `digits` after the point, halves away from zero, as people round."""
    scale = 10**digits
    up = (abs(value) * scale * 2 + 1) // 2
    return Fraction(int(up) if value >= 0 else -int(up), scale)


def shown(value: Fraction, digits: int = 2) -> str:
    """A number with so many digits after the point."""
    return f"{float(rounded(value, digits)):.{digits}f}"


@dataclass(frozen=True, slots=True)
class Defect:
    """Something in the paper that is wrong: what it prints and what is right, each with its unit in words."""

    id: str
    where: str
    says: str
    printed: str
    right: str
    why: str


def defects(parameters: Parameters, printed: Mapping[str, Fraction], right: Mapping[str, Fraction]) -> list[Defect]:
    """What is wrong in sections 2.1.3 and 3.2, each with both numbers for these parameters."""
    p = parameters
    found = [
        Defect(
            "waiting", "sections 2.1.3 and 3.2.2", "a message waits 1/lambda for a CPU",
            f"{shown(printed['waiting'], 1)} us", f"{shown(right['waiting'])} us",
            "1/lambda is the time between two arrivals and no waiting time. Eq. 5 gives "
            f"1/(mu - lambda) = {shown(right['sojourn'])} us; it becomes 1/lambda only by setting the mean number of messages to 1, "
            f"and that number is rho/(1 - rho) = {shown(right['customers'], 3)}.",
        ),
        Defect(
            "sojourn", "eq. 4 and 5", "T_pub is added to P",
            f"{shown(printed['waiting'] + p.service_us, 1)} us", f"{shown(right['sojourn'])} us",
            "Eq. 5 is the sojourn time of an M/M/1, service included: it replaces P and is not added to it.",
        ),
        Defect(
            "probabilities", "below eq. 4", "pi_0 = T_pub = T_sub and pi_1 = P = P1",
            f"{shown(printed['pi_0'], 4)} and {shown(printed['pi_1'], 4)}", f"{shown(right['sojourn'])} us",
            "pi_0 and pi_1 are shares of time without a unit. Neither is a time, and table 2 does not use them.",
        ),
        Defect(
            "swapped", "below eq. 3", "pi_0 = lambda/(lambda+mu), pi_1 = mu/(lambda+mu)",
            f"{shown(printed['pi_0'], 4)} and {shown(printed['pi_1'], 4)}", f"{shown(right['pi_0'], 4)} and {shown(right['pi_1'], 4)}",
            "Eq. 2 with P01 = lambda and P10 = mu gives the two the other way round, and section 3.2.2 says 0.9 and 0.1 as well.",
        ),
        Defect(
            "counted-once-lambda", "table 2", "T_pub + T_sub = 1/lambda",
            f"{shown(printed['pub_and_sub'], 1)} us", f"{shown(right['pub_and_sub'])} us",
            f"Section 2.1.3 sets each of the two to 1/lambda: their sum is twice that, {shown(2 * printed['waiting'], 1)} us, by the paper's own "
            f"eq. 4. As a message waits {shown(right['waiting'])} us for a CPU and not 1/lambda, it is twice that wait.",
        ),
        Defect(
            "counted-once-mu", "table 2", "P + P1 = 1/mu",
            f"{shown(printed['both_cpus'])} us", f"{shown(right['both_cpus'])} us",
            "Each end serves the message once: eq. 4 has two terms.",
        ),
    ]  # fmt: skip
    if p.is_papers_packet:
        found.append(
            Defect(
                "transmission", "table 1", "8192 bits at 100 Mbit/s",
                f"{shown(printed['transmission'])} us", f"{shown(right['transmission'])} us",
                f"8192 / 100 is 81.92. It is in D once per hop: {shown(printed['network'])} us and not {shown(right['network'])} us.",
            )
        )  # fmt: skip
    if "link_waiting" in right:
        why = (
            f"The packets need {shown(100 * p.link_utilisation, 1)} % of each link, and eq. 6 lets none of them wait. With Poisson arrivals "
            "the first link alone would make them wait that long on average (M/D/1), and the corrected total leaves it out as the paper does."
        )
        ours = f"{shown(right['link_waiting'])} us"
    else:
        why = f"The packets need {shown(100 * p.link_utilisation, 1)} % of each link: its queue grows without limit."
        ours = "no mean exists"
    found.append(Defect("link-waiting", "eq. 6 (ours)", "no message waits for a link", "0 us", ours, why))
    return found
