"""The words for times in the languages that write words with spaces. Folded: no accents, lower case.

Words of a group are separated by commas and may consist of several words. A number before a colon is the value of the
words after it: months count from 1, weekdays from 0 (Monday), seasons from 0 (spring).
"""

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Literal, get_args

from msgspec import Struct

# -- expressions -------------------------------------------------------------------------------------------------------
# What a time in a text says, before it is known when the text was written. A closed union of frozen values.

Unit = Literal["minute", "hour", "day", "weekend", "week", "month", "year"]
# "in": during the time; "since": from its beginning on; "after": from its end on; "before": until its beginning.
Bound = Literal["in", "since", "after", "before"]


class RelativeYear(Struct, frozen=True):
    """A year, counted back from the current one: last year is one back."""

    back: int


Year = int | RelativeYear


class CalendarDate(Struct, frozen=True):
    """A year, a month or a day. Without a year, the latest one that has begun."""

    year: Year | None = None
    month: int | None = None
    day: int | None = None


class Season(Struct, frozen=True):
    """0 is spring. `year` is the year in which it begins; without one, the latest season that has begun."""

    number: int
    year: Year | None = None


class Weekday(Struct, frozen=True):
    """0 is Monday. The latest such day, today included unless `is_past`, or the one of a week that is counted back from
    the current one."""

    number: int
    is_past: bool = False
    weeks_back: int | None = None


class CalendarUnit(Struct, frozen=True):
    """A day, week, month or year, counted back from the current one: yesterday is one day back."""

    unit: Unit
    back: int


class RecentPeriod(Struct, frozen=True):
    """The last `count` units until now."""

    unit: Unit
    count: int


class PeriodBefore(Struct, frozen=True):
    """The `count` units before a date: the week before 16 November."""

    unit: Unit
    count: int
    date: CalendarDate


class Instant(Struct, frozen=True):
    """A time with hours. Without an offset it is in the time zone of the reader."""

    time: datetime


SingleTime = CalendarDate | Season | Weekday | CalendarUnit | RecentPeriod | PeriodBefore | Instant


class PeriodBetween(Struct, frozen=True):
    """From the beginning of one time to the end of another: between May and July."""

    first: SingleTime
    last: SingleTime


TimeExpression = SingleTime | PeriodBetween


class TimeMention(Struct, frozen=True):
    """A time in a text, and the words that name it."""

    expression: TimeExpression
    words: str
    bound: Bound = "in"

    @property
    def is_relative(self) -> bool:
        """Whether the words mean another time every day. A weekday alone does not count: it may be a title."""
        match self.expression:
            case Weekday(is_past=is_past):
                return is_past
            case _:
                return isinstance(self.expression, CalendarUnit | RecentPeriod)


WordKind = Literal[
    "name",
    "month",
    "weekday",
    "season",
    "unit",
    "day",
    "last",
    "this",
    "ago",
    "number",
    "in",
    "since",
    "after",
    "before",
    "of",
]


class TimeWord(Struct, frozen=True):
    """A word with a meaning. A weak word, such as "may", is a time only in a context that makes it one."""

    kind: WordKind
    value: int = 0
    is_weak: bool = False


UNITS: tuple[Unit, ...] = get_args(Unit)
_MINUTE, _HOUR, _DAY, _WEEKEND, _WEEK, _MONTH, _YEAR = (f"{number}:" for number in range(len(UNITS)))

# By language and kind of word. The value of a "day" is how many days it is back. "ago" is 0 if it comes before the
# number and the unit, 1 if after them. Weak words usually mean something else, and a "name" is not a time although
# it contains one.
_WORDS: Mapping[str, Mapping[str, str]] = {
    "en": {
        "month": "1:january 2:february 4:april 6:june 7:july 8:august 9:september 10:october 11:november 12:december",
        "weak month": "1:jan 2:feb 3:march,mar 4:apr 5:may 6:jun 7:jul 8:aug 9:sep,sept 10:oct 11:nov 12:dec",
        "weekday": "0:monday 1:tuesday 2:wednesday 3:thursday 4:friday 5:saturday 6:sunday",
        "season": "0:spring 1:summer 2:autumn,fall 3:winter",
        "unit": f"{_MINUTE}minute,minutes {_HOUR}hour,hours {_DAY}day,days {_WEEKEND}weekend,weekends "
        f"{_WEEK}week,weeks {_MONTH}month,months {_YEAR}year,years",
        "day": "0:today,this morning,this afternoon,this evening,tonight 1:yesterday,last night 2:day before yesterday",
        "last": "last,past,previous",
        "this": "this,current",
        "ago": "1:ago",
        "number": "1:a,an,one 2:two,couple of 3:three 4:four 5:five 6:six 7:seven 8:eight 9:nine 10:ten 12:twelve",
        "in": "in,on,during,early,late,mid,of,until,till,by,for,from,between",
        "since": "since",
        "after": "after",
        "before": "before",
        "of": "of,the,of the",
    },
    "de": {
        "month": "1:januar,janner 2:februar 3:marz,maerz 4:april 5:mai 6:juni 7:juli 8:august 9:september "
        "10:oktober 11:november 12:dezember",
        "weekday": "0:montag 1:dienstag 2:mittwoch 3:donnerstag 4:freitag 5:samstag,sonnabend 6:sonntag",
        "season": "0:fruhling,fruhjahr,fruehling,fruehjahr 1:sommer 2:herbst 3:winter",
        "unit": f"{_MINUTE}minute,minuten {_HOUR}stunde,stunden {_DAY}tag,tage,tagen {_WEEKEND}wochenende,wochenenden "
        f"{_WEEK}woche,wochen {_MONTH}monat,monate,monats,monaten {_YEAR}jahr,jahre,jahres,jahren",
        "day": "0:heute 1:gestern 2:vorgestern",
        "last": "letzte,letzten,letzter,letztes,letztem,vergangene,vergangenen,vergangener,vergangenes,vorige,vorigen,"
        "voriges,voriger",
        "this": "diese,diesen,dieser,dieses,diesem",
        "ago": "0:vor",
        "number": "1:ein,eine,einem,einer,einen 2:zwei 3:drei 4:vier 5:funf,fuenf 6:sechs 7:sieben 8:acht 9:neun "
        "10:zehn 12:zwolf,zwoelf",
        "in": "im,in,am,bis,anfang,mitte,ende,vom,von",
        "since": "seit,ab",
        "after": "nach",
        "before": "vor",
        "of": "des,der,dem,den,im,am",
    },
    "fr": {
        "month": "1:janvier 2:fevrier 4:avril 5:mai 6:juin 7:juillet 8:aout 9:septembre 10:octobre 11:novembre "
        "12:decembre",
        "weak month": "3:mars",
        "weekday": "0:lundi 1:mardi 2:mercredi 3:jeudi 4:vendredi 5:samedi 6:dimanche",
        "season": "0:printemps 1:ete 2:automne 3:hiver",
        "unit": f"{_MINUTE}minute,minutes {_HOUR}heure,heures {_DAY}jour,jours {_WEEKEND}week end,weekend "
        f"{_WEEK}semaine,semaines {_MONTH}mois {_YEAR}an,ans,annee,annees",
        "day": "0:aujourd hui,ce matin,ce soir 2:avant hier",
        "weak day": "1:hier",
        "last": "dernier,derniere,derniers,dernieres,passe,passee,passes,passees",
        "this": "ce,cet,cette",
        "ago": "0:il y a",
        "number": "1:un,une 2:deux 3:trois 4:quatre 5:cinq 6:six 7:sept 8:huit 9:neuf 10:dix 12:douze",
        "in": "en,au,du,de,debut,fin,mi,le,mois de,jusqu,entre",
        "since": "depuis,a partir de",
        "after": "apres",
        "before": "avant",
        "of": "de,d,du,l,le,la,les,de l,de la",
    },
    "es": {
        "month": "1:enero 2:febrero 3:marzo 4:abril 5:mayo 6:junio 7:julio 8:agosto 9:septiembre,setiembre "
        "10:octubre 11:noviembre 12:diciembre",
        "weekday": "0:lunes 1:martes 2:miercoles 3:jueves 4:viernes 5:sabado 6:domingo",
        "season": "0:primavera 1:verano 2:otono 3:invierno",
        "unit": f"{_MINUTE}minuto,minutos {_HOUR}hora,horas {_DAY}dia,dias {_WEEKEND}fin de semana "
        f"{_WEEK}semana,semanas {_MONTH}mes,meses {_YEAR}ano,anos",
        "day": "0:hoy,esta manana,esta tarde 1:ayer,anoche 2:anteayer,antes de ayer",
        "last": "pasado,pasada,pasados,pasadas,ultimo,ultima,ultimos,ultimas",
        "this": "este,esta",
        "ago": "0:hace",
        "number": "1:un,una,uno 2:dos 3:tres 4:cuatro 5:cinco 6:seis 7:siete 8:ocho 9:nueve 10:diez 12:doce",
        "in": "en,durante,el,de,hasta",
        "since": "desde,a partir de",
        "after": "despues de,tras",
        "before": "antes de,antes del",
        "of": "de,del,el,la,los,las,de la",
    },
    "pt": {
        "month": "1:janeiro 2:fevereiro 3:marco 4:abril 5:maio 6:junho 7:julho 8:agosto 9:setembro 10:outubro "
        "11:novembro 12:dezembro",
        "name": "rio de janeiro",
        "weekday": "0:segunda feira 1:terca feira 2:quarta feira 3:quinta feira 4:sexta feira 5:sabado 6:domingo",
        "season": "0:primavera 1:verao 2:outono 3:inverno",
        "unit": f"{_MINUTE}minuto,minutos {_HOUR}hora,horas {_DAY}dia,dias {_WEEKEND}fim de semana "
        f"{_WEEK}semana,semanas {_MONTH}mes,meses {_YEAR}ano,anos",
        "day": "0:hoje 1:ontem 2:anteontem",
        "last": "passado,passada,passados,passadas,ultimo,ultima,ultimos,ultimas",
        "this": "este,esta,neste,nesta,deste,desta",
        "ago": "0:ha 1:atras",
        "number": "1:um,uma 2:dois,duas 3:tres 4:quatro 5:cinco 6:seis 7:sete 8:oito 9:nove 10:dez 12:doze",
        "in": "em,no,na,durante,de,ate",
        "since": "desde,a partir de",
        "after": "depois de,apos",
        "before": "antes de,antes do",
        "of": "de,do,da,o,a,os,as",
    },
    "ru": {
        "month": "1:январь,января,январе 2:февраль,февраля,феврале 3:март,марта,марте 4:апрель,апреля,апреле "
        "5:май,мая,мае 6:июнь,июня,июне 7:июль,июля,июле 8:август,августа,августе 9:сентябрь,сентября,сентябре "
        "10:октябрь,октября,октябре 11:ноябрь,ноября,ноябре 12:декабрь,декабря,декабре",
        "weekday": "0:понедельник,понедельника 1:вторник,вторника 2:среду,среды 3:четверг,четверга "
        "4:пятница,пятницу,пятницы 5:суббота,субботу,субботы 6:воскресенье,воскресенья",
        "season": "0:весна,весной,весны,весну 1:лето,летом,лета 2:осень,осенью,осени 3:зима,зимой,зимы,зиму",
        "unit": f"{_MINUTE}минута,минуту,минуты,минут {_HOUR}час,часа,часов {_DAY}день,дня,дней,сутки,суток "
        f"{_WEEKEND}выходные,выходных {_WEEK}неделя,неделю,недели,неделе,недель {_MONTH}месяц,месяца,месяце,месяцев "
        f"{_YEAR}год,года,году,лет",
        "day": "0:сегодня 1:вчера 2:позавчера",
        "last": "прошлый,прошлая,прошлое,прошлые,прошлой,прошлую,прошлом,прошлого,прошлым,прошлых,последний,последняя,"
        "последнюю,последние,последних,последней",
        "this": "этот,эта,это,эти,этой,эту,этом,этого,этим",
        "ago": "1:назад,тому назад",
        "number": "1:один,одну,одна 2:два,две 3:три 4:четыре 5:пять 6:шесть 7:семь 8:восемь 9:девять 10:десять "
        "12:двенадцать",
        "in": "в,во,за,на,к,начале,конце,середине",
        "since": "с,со,начиная с",
        "after": "после",
        "before": "до",
        "of": "года,г,в,на,за",
    },
}
LANGUAGES = tuple(_WORDS)
# Words next to which a weak day is a day: "hier" is French only next to other French words, and German "here".
COMPANIONS: Mapping[str, frozenset[str]] = {
    "fr": frozenset((
        "a", "ai", "au", "avec", "ce", "de", "des", "du", "elle", "en", "est", "et", "il", "je", "la", "le", "les",
        "nous", "on", "ont", "pour", "qu", "que", "qui", "soir", "sur", "un", "une", "vous",
    )),
}  # fmt: skip


# Words that ask for whatever there was: "was habe ich gestern gemacht?". English stop words are not repeated.
ASKING_WORDS: Mapping[str, frozenset[str]] = {
    language: frozenset(words.split())
    for language, words in {
        "en": "happen happened made new s write written wrote",
        "de": "alles an da das denn der die du es gab gemacht geschah geschehen geschrieben getan hab habe haben hast "
        "hat ich im in ist los mir neu neues notiert passiert uns war waren was wir wurde",
        "fr": "a ai avez avons c ce de ecrit est et ete fait il j je l la le ne nous nouveau on passe qu que quoi s se "
        "vous y",
        "es": "de el escribi escribimos ha he hecho hemos hice hicimos hizo hubo la lo nos nosotros nuevo paso que se "
        "yo",
        "pt": "a aconteceu de e escrevemos escrevi eu fez fiz fizemos foi ha houve na no nos novo o que se",
        "ru": "было в делал делала делали и мы на написал написала нового писал писала произошло сделал сделала "
        "сделали случилось у что я",
    }.items()
}


# By language: the words before and between two times that make a period of them.
PERIOD_WORDS: tuple[tuple[frozenset[str], frozenset[str]], ...] = tuple(
    (frozenset(before.split(",")), frozenset(between.split(",")))
    for before, between in (
        ("between", "and"),
        ("from", "to,until,till,through"),
        ("zwischen", "und,und dem"),
        ("von,vom,ab,seit", "bis,bis zum,bis ende"),
        ("entre", "et,et le,et la"),
        ("de,du,depuis", "a,au,jusqu a,jusqu au,jusqu en"),
        ("entre", "y,y el,y la"),
        ("de,del,desde", "a,al,hasta,hasta el"),
        ("entre", "e,e o,e a"),
        ("de,do,desde", "a,ao,ate,ate o"),
        ("между", "и"),
        ("с,со", "до,по"),
    )
)
# The words between two times, in any language.
PERIOD_CONNECTIONS = frozenset(word for _, between in PERIOD_WORDS for word in between)
# What makes a period of two times without a word before them.
PERIOD_SIGNS = frozenset(("-", "–", "—", "~", "〜", "～", "から", "到", "至"))


def _read_group(kind: str, group: str) -> Iterator[tuple[str, TimeWord]]:
    is_weak = kind.startswith("weak ")
    word_kind: WordKind = kind.removeprefix("weak ")  # type: ignore[assignment]  # a key of the table
    value = 0
    words: list[str] = []
    for part in group.split(" "):
        number, separator, rest = part.partition(":")
        if separator:
            yield from _entries(words, word_kind, value, is_weak=is_weak)
            value, words = int(number), [rest]
        else:
            words.append(part)
    yield from _entries(words, word_kind, value, is_weak=is_weak)


def _entries(words: list[str], kind: WordKind, value: int, *, is_weak: bool) -> Iterator[tuple[str, TimeWord]]:
    for word in filter(None, " ".join(words).split(",")):
        yield word, TimeWord(kind, value, is_weak)


Lexicon = Mapping[str, tuple[TimeWord, ...]]


def _lexicon(groups: Mapping[str, str]) -> Lexicon:
    """Some words have several meanings: "vor" is "ago" before a number and "before" before a date."""
    lexicon: dict[str, tuple[TimeWord, ...]] = {}
    for kind, group in groups.items():
        for text, word in _read_group(kind, group):
            lexicon[text] = (*lexicon.get(text, ()), word)
    return lexicon


LEXICONS: Mapping[str, Lexicon] = {language: _lexicon(groups) for language, groups in _WORDS.items()}


def _first_words(kinds: frozenset[str]) -> Mapping[str, frozenset[str]]:
    """Returns the first words of what has one of the meanings, by language."""
    return {
        language: frozenset(
            text.split()[0] for text, words in lexicon.items() if any(word.kind in kinds for word in words)
        )
        for language, lexicon in LEXICONS.items()
    }


# Words that name a time by themselves or together with a number. A text without any of them, and without a number,
# mentions no time.
NAMING_WORDS = _first_words(frozenset(("month", "weekday", "season", "unit", "day")))
TIME_WORDS = frozenset[str]().union(*NAMING_WORDS.values())
BOUND_WORDS = _first_words(frozenset(("since", "after", "before")))
PHRASE_WORDS_MAX = max(len(text.split()) for lexicon in LEXICONS.values() for text in lexicon)
