"""The words and sentences that StoryWorld's stories are made of."""

import re

GIRLS = (
    "Amara Bea Clara Dalia Elsa Farah Greta Hana Ines Julia Kira Lena Mia Nora Olga Priya Rosa "
    "Sofia Tara Yuki"
)
BOYS = (
    "Adam Ben Carlos David Emil Felix Goran Hugo Ivan Jamal Kofi Liam Marco Noah Omar Pablo Ravi "
    "Samir Tom Victor"
)
_LISTS = {
    "name": f"{GIRLS} {BOYS}",
    "place": (
        "Ashford Birchwood Brookside Cedarville Eastbridge Elmwood Fairview Fernhill Foxhollow "
        "Glenview Greenfield Hillcrest Lakeside Maplewood Meadowbrook Northgate Oakhill Pinewood "
        "Riverside Rosedale Seaview Springfield Westport Willowdale"
    ),
    "thing": (
        "basket bell book bottle bowl box brush button candle chair clock coat cup drum fan flute "
        "hat kite ladder lamp lantern map mirror pillow ring rope scarf spoon teapot umbrella"
    ),
    "colour": "black blue brown golden gray green pink purple red silver white yellow",
    "trait": (
        "bold brave calm careful cheerful clever curious friendly funny gentle honest kind lively "
        "modest patient polite proud quiet shy wise"
    ),
    "job": (
        "baker carpenter dancer doctor farmer gardener miller nurse painter pilot poet potter "
        "sailor singer tailor teacher"
    ),
    "weather": "cloudy cold dark foggy frosty hot mild misty rainy snowy stormy sunny warm windy",
    "day": "afternoon day evening morning",
    "go": "came cycled hurried ran strolled walked wandered went",
    "carry": "brought carried had held",
    "say": "explained said sang whispered",
    "saying1": (
        "Bright Busy Early Happy Hungry Little Lonely Old Patient Quick Quiet Slow Strong Tired "
        "Wild Young"
    ),
    "saying2": (
        "bees birds boats cats clouds dogs dreams ducks foxes horses mice owls rivers stars trees "
        "winds"
    ),
    "saying3": (
        "dance drift fall fly grow hide listen rest return rise shine sleep swim travel wait wander"
    ),
    "saying4": (
        "alone calmly early forever gently gladly indoors nearby often outside quietly silently "
        "slowly softly together well"
    ),
    "food": "bread cake cheese corn fish honey jam milk nuts pie plums rice salad soup tea toast",
    "feeling": (
        "excited free glad grateful hopeful lucky relaxed rested safe strong surprised thankful"
    ),
}
CLASSES = {name: tuple(listed.split()) for name, listed in _LISTS.items()}
# two that never share a word
DIFFERENT = {"B": "A", "place2": "place", "thing2": "thing1", "colour2": "colour1"}
PRONOUNS = {
    form: dict.fromkeys(GIRLS.split(), girl) | dict.fromkeys(BOYS.split(), boy)
    for form, girl, boy in (("she", "she", "he"), ("She", "She", "He"))
}

# What a word said again is, by its role, and how hard it is to predict.
KINDS = {
    "A": "name", "B": "name", "place": "place", "thing1": "object", "thing2": "object",
    "colour1": "colour",
    "colour2": "colour", "trait": "trait", "job": "trait", "saying1": "quotation",
    "saying2": "quotation",
    "saying3": "quotation", "saying4": "quotation",
}  # fmt: skip
LOOK_BACKS = ("pronoun", "owner", *dict.fromkeys(KINDS.values()))

# How a sentence is written. {role=class} says a new word, {role} says it again and {role.she} is
# its pronoun. {role:kind} says a word again that is of another kind than usual, {role:} one that
# the past leaves open. The roles person and friend mean A and B or B and A; thing, colour, holder
# and other stand for thing1, colour1, who holds it and who does not, or those of thing2. In
# brackets are ways to speak of a person or a holder. The readings of a sentence, and the sentences
# of a list, are equally likely.
ABOUT = {
    "[person]": {"A": "how {trait} {A} was", "B": "our {job} {B}"},
    "[either holder]": {"A": "{trait:} {A}", "B": "our {job} {B}"},
    "[the holder]": {"A": "{trait:owner} {A}", "B": "our {job} {B}"},
}
SAYING = '"{saying1} {saying2} {saying3} {saying4}."'
SENTENCES = {
    "opening": [
        "One {weather=weather} {day=day}, {trait=trait} {A=name} {go=go} to {place=place}."
        " {A.She} {carry=carry} a {colour1=colour} {thing1=thing}."
    ],
    "meeting": [
        " There {A.she} met {B=name}, a {job=job} with a {colour2=colour} {thing2=thing}.",
        " A {job=job} named {B=name} was there with a {colour2=colour} {thing2=thing}.",
    ],
    "saying": [" {person:} {say=say} to {friend}, " + re.sub(r"saying\d", r"\g<0>=\g<0>", SAYING)],
    "gift": [
        " Then {holder:} gave {other} the {colour:owner} {thing}.",
        " Soon {holder:} handed the {colour:owner} {thing} to {other}.",
    ],
    "gift of two": [
        " Then {holder:owner} gave {other} the {colour:} {thing}.",
        " Soon {holder:owner} handed the {colour:} {thing} to {other}.",
    ],
    "trade": [" Then they traded their things."],
    "meal": [" Afterwards they shared some {food=food} in {place}."],
    "walk": [" Afterwards they left {place} for {place2=place}."],
    "colour": [" The {thing:} looked {colour}.", " In the light the {thing:} seemed {colour}."],
    "name": [
        " With a smile, {person:} thanked {friend}. {person.She} felt {feeling=feeling}.",
        " Before long {person:} thanked {friend}. {person.She} felt {feeling=feeling}.",
    ],
    "object": [
        " The {colour:} {thing} was easy to see.",
        " Far away the {colour:} {thing} could be seen.",
    ],
    "owner": [
        " By then the {colour:} {thing} belonged to {holder:owner}.",
        " Everybody saw that the {colour:} {thing} was now with {holder:owner}.",
    ],
    "place": [" Nobody else was in {place} that day.", " It was lovely in {place}."],
    "place afar": [" Later they remembered {place}.", " Soon they missed {place}."],
    "quotation": [f" Often {{listener}} thought, {SAYING}", (
f" In the end {{listener}} understood, "
f"{SAYING}")],
    "trait": [" Everybody knew [person]."],
    "ending": [" At last [either holder] took the {colour:owner} {thing} home."],
    "ending of two": [" At last [the holder] took the {colour:} {thing} home."],
    "line end": ["\n"],
}  # fmt: skip
# What a story can tell again, and how many of these it does, in any order.
RECALLS = ("colour", "name", "object", "owner", "place", "quotation", "trait")
N_RECALLS = 4
