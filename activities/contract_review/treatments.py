"""What to do about each finding (ISO 31000:2018, 6.5), and the wording to propose to the other side.

In the wording `{us}` and `{them}` stand for the parties' roles; what stands in square brackets is to be agreed.
"""

from dataclasses import dataclass

from activities.contract_review.records import Treatment


@dataclass(frozen=True)
class Plan:
    """The treatment of what a rule finds.

    Attributes:
        event: What may happen, as a sentence.
        option: Avoid (have it struck), reduce, share (with the other side or an insurer), or retain.
        action: What to do.
        wording: Words to propose; empty where the action says it all.
        likelihood: By how much the likelihood falls once it is done.
        consequence: By how much the consequence falls.
    """

    event: str
    option: Treatment
    action: str
    wording: str = ""
    likelihood: int = 1
    consequence: int = 1


PLANS: dict[str, Plan] = {
    "PAY-1": Plan(
        "Invoices stay open for months, or the term is struck down and the law's shorter one applies.",
        "reduce",
        "Agree on 30 days.",
        "Invoices are payable within thirty (30) days of receipt of an undisputed invoice.",
    ),
    "PAY-2": Plan(
        "A disputed or mislaid invoice grows faster than it can be settled.",
        "reduce",
        "Agree on the statutory rate, and none on disputed sums.",
        "Undisputed amounts that are overdue bear interest at the statutory rate.",
        consequence=2,
    ),
    "PAY-3": Plan(
        "Prices rise after {us} has come to depend on it.",
        "reduce",
        "Bind increases to an index, with a right to leave.",
        "{them} may increase the fees once a year by no more than the change of [consumer price index], on ninety (90) "
        "days' notice; {us} may then terminate as of the day of the increase.",
        likelihood=2,
    ),
    "PAY-4": Plan(
        "The contract ends early and what was paid ahead is lost.",
        "reduce",
        "Have fees for the time after the end refunded.",
        "If this Agreement ends before a period that was paid for, {them} refunds the fees for the rest of it, unless "
        "{us} was in material breach.",
    ),
    "PEN-1": Plan(
        "The sum falls due although the damage is smaller, or there is none.",
        "avoid",
        "Have it struck; accept proven costs instead.",
        "{us} reimburses the reasonable and proven costs that {them} cannot avoid.",
        consequence=2,
    ),
    "LIA-1": Plan(
        "One event costs {us} more than the contract can ever earn.",
        "reduce",
        "Ask for a cap that holds for both sides, and insure what is below it.",
        "Each party's total liability under this Agreement is limited to [one hundred] percent of the fees payable "
        "in the twelve (12) months before the event. Nothing limits liability that the law does not allow to be "
        "limited.",
        consequence=3,
    ),
    "LIA-2": Plan(
        "{us} answers for all foreseeable damage.",
        "reduce",
        "Ask for a cap that holds for both sides.",
        "Each party's total liability under this Agreement is limited to [one hundred] percent of the fees payable "
        "in the twelve (12) months before the event. Nothing limits liability that the law does not allow to be "
        "limited.",
        consequence=2,
    ),
    "LIA-3": Plan(
        "{them} does damage and pays a small part of it.",
        "share",
        "Raise the cap to a year of fees, and ask for insurance up to the likely damage.",
        "{them}'s total liability is limited to the greater of [amount] and the fees payable in the twelve (12) "
        "months before the event.",
        consequence=2,
    ),
    "LIA-4": Plan(
        "{them} acts carelessly and {us} bears the damage.",
        "avoid",
        "Have gross negligence and intent taken out of the exclusion.",
        "Nothing in this Agreement limits or excludes liability for gross negligence, wilful misconduct, death or "
        "personal injury.",
        consequence=2,
    ),
    "IND-1": Plan(
        "A third party sues, and {us} pays for what {them} did.",
        "share",
        "Make it mutual and bind it to fault.",
        "Each party indemnifies the other against claims of third parties so far as they result from its own breach or "
        "negligence.",
        consequence=2,
    ),
    "IND-2": Plan(
        "{us} pays for losses that it neither caused nor could foresee.",
        "reduce",
        "Limit it to claims of third parties that {us} caused, with notice and control of the defence.",
        "The indemnity covers claims of third parties so far as {us} caused them, provided that {them} gives prompt "
        "notice and leaves the defence to {us}.",
        consequence=2,
    ),
    "INS-1": Plan(
        "{them} owes damages and cannot pay.",
        "share",
        "Ask for liability insurance and its certificate.",
        "{them} maintains professional and public liability insurance of at least [amount] for each event and shows "
        "the certificate on request.",
    ),
    "REN-1": Plan(
        "The term passes unnoticed and another one begins.",
        "avoid",
        "Have it renewed only by agreement, or put a notice of 30 days.",
        "This Agreement ends with its initial term unless both parties agree in writing to renew it.",
        likelihood=3,
    ),
    "REN-2": Plan(
        "The last day for notice passes months before anyone thinks of it.",
        "reduce",
        "Shorten the notice and the renewed term; enter the day in the calendar of deadlines.",
        "Either party may prevent the renewal by notice at least thirty (30) days before the end of the term. A "
        "renewed term is twelve (12) months.",
        likelihood=2,
    ),
    "TER-1": Plan(
        "{them} leaves before {us} has found a replacement.",
        "reduce",
        "Agree on 90 days and on help with the transition.",
        "Either party may terminate this Agreement on ninety (90) days' written notice. {them} continues to perform, "
        "and helps with the transition, until then.",
        consequence=2,
    ),
    "TER-2": Plan(
        "{us} has to go on although its needs have changed.",
        "share",
        "Make the right mutual.",
        "Either party may terminate this Agreement for convenience on [sixty (60)] days' written notice.",
        likelihood=2,
    ),
    "CHG-1": Plan(
        "{them} changes what {us} relied on.",
        "avoid",
        "Have changes need agreement; for services shared with others, ask for notice and a right to leave.",
        "Changes of this Agreement need the written agreement of both parties. {them} may change the service if that "
        "does not reduce it, on sixty (60) days' notice; otherwise {us} may terminate and is refunded.",
        likelihood=3,
    ),
    "SUS-1": Plan(
        "Access is cut while the business needs it.",
        "reduce",
        "Ask for notice, a cause and a way back.",
        "{them} may suspend access for a material breach that is not cured within ten (10) days of a notice, or at "
        "once so far as a threat to security demands it, and restores it when the cause is gone.",
        consequence=2,
    ),
    "NCM-1": Plan(
        "{us} cannot do business that it would otherwise do.",
        "avoid",
        "Have it struck, or bound in time, place and subject.",
        "For the term and six (6) months after it {us} does not [named activity] in [named territory].",
        consequence=3,
    ),
    "ASG-1": Plan(
        "A competitor or an insolvent company takes the other side's place.",
        "reduce",
        "Ask for consent, except within a group.",
        "Neither party may assign this Agreement without the consent of the other, which is not unreasonably "
        "withheld, save to an affiliate that can perform it.",
    ),
    "EXT-1": Plan(
        "The data are gone before they were copied.",
        "avoid",
        "Ask for an export and a period before deletion.",
        "For sixty (60) days after the end {them} makes the data available for export in a common format, and "
        "deletes them only then, with a confirmation.",
        likelihood=2,
    ),
    "CON-1": Plan(
        "A breach is alleged long after anybody knows what was confidential.",
        "reduce",
        "Agree on a term; keep trade secrets apart.",
        "These obligations end five (5) years after the disclosure; for trade secrets they last as long as the "
        "secret does.",
        likelihood=2,
    ),
    "CON-2": Plan(
        "Using public knowledge is a breach.",
        "reduce",
        "Ask for the usual exceptions.",
        "Confidential Information does not include what is or becomes public without a breach, was known or is "
        "developed independently, or is rightfully received from a third party.",
    ),
    "CON-3": Plan("Records must be guarded for longer than they are kept.", "reduce", "Agree on a shorter term."),
    "IPR-1": Plan(
        "{us} loses what it brought along, and must ask to use its own work.",
        "avoid",
        "Have it struck; grant a licence for the purpose instead.",
        "Each party keeps what it owned before or develops independently. {us} grants {them} a non-exclusive licence "
        "to use what it provides, so far as the Services need it.",
        consequence=3,
    ),
    "IPR-2": Plan(
        "The contract ends and with it the right to use what was paid for.",
        "reduce",
        "Ask for ownership, or for a licence without end.",
        "On payment {them} assigns the Deliverables to {us}, or, for its own pre-existing parts, grants a perpetual "
        "licence to use them.",
        consequence=2,
    ),
    "DPA-1": Plan(
        "Personal data are processed without the contract that the law demands.",
        "avoid",
        "Do not hand over personal data before a processing agreement is signed.",
        "The data processing agreement in Schedule [n], which meets Article 28(3) GDPR, is part of this Agreement.",
        likelihood=2,
    ),
    "DPA-2": Plan(
        "An authority, or a breach, shows what the contract does not provide for.",
        "reduce",
        "Add what is missing, best by a processing agreement.",
        "{them} processes personal data on documented instructions only, keeps them secure, reports breaches within "
        "forty-eight (48) hours, uses sub-processors with consent and under the same duties, assists with the rights "
        "of data subjects, and returns or deletes the data at the end.",
        likelihood=2,
    ),
    "DPA-3": Plan(
        "Data reach a country without protection, and the transfer is forbidden.",
        "reduce",
        "Bind transfers to safeguards.",
        "Personal data leave the European Economic Area only with consent and under an adequacy decision or the "
        "standard contractual clauses.",
        likelihood=2,
    ),
    "WAR-1": Plan(
        "It does not work and nobody has to mend it.",
        "reduce",
        "Ask for a warranty of conformity with a remedy.",
        "{them} warrants that what it provides conforms in all material respects to its description, and mends or "
        "replaces what does not.",
    ),
    "AUD-1": Plan(
        "Inspectors arrive unannounced and see more than they need.",
        "reduce",
        "Ask for notice, hours and confidence.",
        "{them} may audit once a year, on fifteen (15) business days' notice, in business hours and under confidence.",
    ),
    "LAW-1": Plan(
        "A dispute is heard far away, under rules that {us} does not know.",
        "avoid",
        "Agree on a law and a court that both can live with.",
        "This Agreement is governed by the laws of [accepted law]; its courts have jurisdiction.",
        consequence=2,
    ),
    "MIS-1": Plan(
        "The parties find that they never agreed on it.",
        "reduce",
        "Ask for a clause on it.",
        likelihood=2,
    ),
    "CFL-1": Plan(
        "A term or deadline is counted from the wrong day.", "avoid", "Have one date stated once.", likelihood=2
    ),
    "CFL-2": Plan("More is invoiced than was meant.", "avoid", "Have one amount stated once.", likelihood=3),
    "CFL-3": Plan(
        "A deadline is missed because it was read the other way.", "avoid", "Have the figure corrected.", likelihood=2
    ),
    "REF-1": Plan("A right or a limit has no effect.", "avoid", "Have the reference corrected.", likelihood=2),
    "INJ-1": Plan(
        "A program that reads the contract reports what the other side wants it to.",
        "avoid",
        "Have the sentence struck, ask why it is there, and have a person read the contract.",
        likelihood=2,
    ),
}
"""The plan for each rule."""

UNKNOWN = Plan(
    "What the clause allows comes to pass.",
    "reduce",
    "Have a lawyer look at the clause, and negotiate it.",
)
"""The plan for what a model found and no rule knows."""
