"""The words for times, by language. A language is one entry; nothing else has to be changed for another one.

Words are folded (lower case, no accents), except those of `EXACT_WORDS`. Words of a group are separated by commas and
may consist of several words. A number before a colon is the value of the words after it: months, quarters and ordinals
count from 1, weekdays from 0 (Monday), seasons from 0 (spring). Of `unit` and `back`, it is a unit; `*` and a number
after it say how many of them: a fortnight is two weeks, "i fjor" is one year back. The value of `day` is how many days
it is back, and of `part` whether it is the beginning (0), the middle or the end of a month or year. `ago`, `since`,
`after` and `before` are 0 if they come before the time, 1 if after it. Weak words usually mean something else, and a
`name` is not a time although it contains one. `periods` are the words before and between two times that make a period
of them. `asks` are words that ask for whatever there was ("was habe ich gestern gemacht?"), and `companions` those next
to which a weak word of the language is a time.
"""

from collections.abc import Mapping

_MINUTE, _HOUR, _DAY, _WEEKEND, _WEEK, _MONTH, _QUARTER, _YEAR = (f"{number}:" for number in range(8))
_TWO_DAYS, _TWO_WEEKS, _TWO_MONTHS, _TWO_YEARS, _LAST_YEAR = "2*2:", "4*2:", "5*2:", "7*2:", "7*1:"
_QUARTERS = "1:q1 2:q2 3:q3 4:q4"

# These lose their meaning without accents: "for" is not "before", "gun" is no day.
EXACT_WORDS = frozenset(("før", "gün", "dün", "vår", "höst", "høst", "går", "igår"))

WORDS: Mapping[str, Mapping[str, str]] = {
    "en": {
        "month": "1:january 2:february 4:april 6:june 7:july 8:august 9:september 10:october 11:november 12:december",
        "weak month": "1:jan 2:feb 3:march,mar 4:apr 5:may 6:jun 7:jul 8:aug 9:sep,sept 10:oct 11:nov 12:dec",
        "weekday": "0:monday 1:tuesday 2:wednesday 3:thursday 4:friday 5:saturday 6:sunday",
        "season": "1:summer 2:autumn 3:winter",
        "weak season": "0:spring 2:fall",
        "quarter": _QUARTERS,
        "unit": f"{_MINUTE}minute,minutes {_HOUR}hour,hours {_DAY}day,days {_WEEKEND}weekend,weekends "
        f"{_WEEK}week,weeks {_TWO_WEEKS}fortnight,fortnights {_MONTH}month,months {_QUARTER}quarter,quarters "
        f"{_YEAR}year,years",
        "week number": "calendar week,iso week,cw",
        "weak week number": "w,wk",
        "day": "0:today,this morning,this afternoon,this evening,tonight 1:yesterday,last night 2:day before yesterday",
        "last": "last,past,previous",
        "this": "this,current",
        "part": "0:early,beginning of,start of 1:mid,middle of 2:late,end of",
        "ago": "1:ago",
        "number": "1:a,an,one 2:two,couple of 3:three 4:four 5:five 6:six 7:seven 8:eight 9:nine 10:ten 12:twelve "
        "14:fourteen 15:fifteen",
        "ordinal": "1:first 2:second 3:third 4:fourth 5:fifth",
        "in": "in,on,during,of,until,till,by,for,from,between",
        "since": "since",
        "after": "after",
        "before": "before",
        "of": "of,the,of the",
        "periods": "between|and from|to,until,till,through",
        "asks": "happen happened made new s write written wrote",
    },
    "de": {
        "month": "1:januar,janner 2:februar 3:marz,maerz 4:april 5:mai 6:juni 7:juli 8:august 9:september "
        "10:oktober 11:november 12:dezember",
        "weekday": "0:montag 1:dienstag 2:mittwoch 3:donnerstag 4:freitag 5:samstag,sonnabend 6:sonntag",
        "season": "0:fruhling,fruhjahr,fruehling,fruehjahr 1:sommer 2:herbst 3:winter",
        "quarter": _QUARTERS,
        "unit": f"{_MINUTE}minute,minuten {_HOUR}stunde,stunden {_DAY}tag,tage,tagen {_WEEKEND}wochenende,wochenenden "
        f"{_WEEK}woche,wochen {_MONTH}monat,monate,monats,monaten {_QUARTER}quartal,quartals,quartale,quartalen "
        f"{_YEAR}jahr,jahre,jahres,jahren",
        "week number": "kw,kalenderwoche",
        "day": "0:heute 1:gestern 2:vorgestern",
        "last": "letzte,letzten,letzter,letztes,letztem,vergangene,vergangenen,vergangener,vergangenes,vorige,vorigen,"
        "voriges,voriger",
        "this": "diese,diesen,dieser,dieses,diesem",
        "part": "0:anfang 1:mitte 2:ende",
        "ago": "0:vor",
        "number": "1:ein,eine,einem,einer,einen 2:zwei 3:drei 4:vier 5:funf,fuenf 6:sechs 7:sieben 8:acht 9:neun "
        "10:zehn 12:zwolf,zwoelf 14:vierzehn",
        "ordinal": "1:erste,ersten,erster,erstes 2:zweite,zweiten,zweiter,zweites 3:dritte,dritten,dritter,drittes "
        "4:vierte,vierten,vierter,viertes",
        "in": "im,in,am,bis,vom,von",
        "since": "seit,ab",
        "after": "nach",
        "before": "vor",
        "of": "des,der,dem,den,im,am",
        "periods": "zwischen|und,und_dem von,vom,ab,seit|bis,bis_zum",
        "asks": "alles an da das denn der die du es gab gemacht geschah geschehen geschrieben getan hab habe haben "
        "hast hat ich im in ist los mir neu neues notiert passiert uns war waren was wir wurde",
    },
    "fr": {
        "month": "1:janvier 2:fevrier 4:avril 5:mai 6:juin 7:juillet 8:aout 9:septembre 10:octobre 11:novembre "
        "12:decembre",
        "weak month": "3:mars",
        "weekday": "0:lundi 1:mardi 2:mercredi 3:jeudi 4:vendredi 5:samedi 6:dimanche",
        "season": "0:printemps 1:ete 2:automne 3:hiver",
        "quarter": "1:t1 2:t2 3:t3 4:t4",
        "unit": f"{_MINUTE}minute,minutes {_HOUR}heure,heures {_DAY}jour,jours {_WEEKEND}week end,weekend "
        f"{_WEEK}semaine,semaines {_MONTH}mois {_QUARTER}trimestre,trimestres {_YEAR}an,ans,annee,annees",
        "day": "0:aujourd hui,ce matin,ce soir 2:avant hier",
        "weak day": "1:hier",
        "last": "dernier,derniere,derniers,dernieres,passe,passee,passes,passees",
        "this": "ce,cet,cette",
        "part": "0:debut 1:mi 2:fin",
        "ago": "0:il y a",
        "number": "1:un,une 2:deux 3:trois 4:quatre 5:cinq 6:six 7:sept 8:huit 9:neuf 10:dix 12:douze 15:quinze",
        "ordinal": "1:premier,premiere 2:deuxieme,second,seconde 3:troisieme 4:quatrieme",
        "in": "en,au,du,de,le,mois de,jusqu,entre",
        "since": "depuis,a partir de",
        "after": "apres",
        "before": "avant",
        "of": "de,d,du,l,le,la,les,de l,de la",
        "periods": "entre|et,et_le,et_la de,du,depuis|a,au,jusqu_a,jusqu_au,jusqu_en",
        "asks": "a ai avez avons c ce de ecrit est et ete fait il j je l la le ne nous nouveau on passe qu que quoi s "
        "se vous y",
        # "hier" is German "here".
        "companions": "a ai au avec ce de des du elle en est et il je la le les nous on ont pour qu que qui soir sur "
        "un une vous",
    },
    "es": {
        "month": "1:enero 2:febrero 3:marzo 4:abril 5:mayo 6:junio 7:julio 8:agosto 9:septiembre,setiembre "
        "10:octubre 11:noviembre 12:diciembre",
        "weekday": "0:lunes 1:martes 2:miercoles 3:jueves 4:viernes 5:sabado 6:domingo",
        "season": "0:primavera 1:verano 2:otono 3:invierno",
        "quarter": "1:t1 2:t2 3:t3 4:t4",
        "unit": f"{_MINUTE}minuto,minutos {_HOUR}hora,horas {_DAY}dia,dias {_WEEKEND}fin de semana "
        f"{_WEEK}semana,semanas {_MONTH}mes,meses {_QUARTER}trimestre,trimestres {_YEAR}ano,anos",
        "day": "0:hoy,esta manana,esta tarde 1:ayer,anoche 2:anteayer,antes de ayer",
        "last": "pasado,pasada,pasados,pasadas,ultimo,ultima,ultimos,ultimas",
        "this": "este,esta",
        "part": "0:principios,comienzos 1:mediados 2:finales,fines",
        "ago": "0:hace",
        "number": "1:un,una,uno 2:dos 3:tres 4:cuatro 5:cinco 6:seis 7:siete 8:ocho 9:nueve 10:diez 12:doce 15:quince",
        "ordinal": "1:primer,primero,primera 2:segundo,segunda 3:tercer,tercero,tercera 4:cuarto,cuarta",
        "in": "en,durante,el,de,hasta",
        "since": "desde,a partir de",
        "after": "despues de,tras",
        "before": "antes de,antes del",
        "of": "de,del,el,la,los,las,de la",
        "periods": "entre|y,y_el,y_la de,del,desde|a,al,hasta,hasta_el",
        "asks": "de el escribi escribimos ha he hecho hemos hice hicimos hizo hubo la lo nos nosotros nuevo paso que "
        "se yo",
    },
    "pt": {
        "month": "1:janeiro 2:fevereiro 3:marco 4:abril 5:maio 6:junho 7:julho 8:agosto 9:setembro 10:outubro "
        "11:novembro 12:dezembro",
        "name": "rio de janeiro",
        "weekday": "0:segunda feira 1:terca feira 2:quarta feira 3:quinta feira 4:sexta feira 5:sabado 6:domingo",
        "season": "0:primavera 1:verao 2:outono 3:inverno",
        "quarter": "1:t1 2:t2 3:t3 4:t4",
        "unit": f"{_MINUTE}minuto,minutos {_HOUR}hora,horas {_DAY}dia,dias {_WEEKEND}fim de semana "
        f"{_WEEK}semana,semanas {_MONTH}mes,meses {_QUARTER}trimestre,trimestres {_YEAR}ano,anos",
        "day": "0:hoje 1:ontem 2:anteontem",
        "last": "passado,passada,passados,passadas,ultimo,ultima,ultimos,ultimas",
        "this": "este,esta,neste,nesta,deste,desta",
        "part": "0:inicio,comeco 1:meados 2:final,fim,fins",
        "ago": "0:ha 1:atras",
        "number": "1:um,uma 2:dois,duas 3:tres 4:quatro 5:cinco 6:seis 7:sete 8:oito 9:nove 10:dez 12:doze 15:quinze",
        "ordinal": "1:primeiro,primeira 2:segundo,segunda 3:terceiro,terceira 4:quarto,quarta",
        "in": "em,no,na,durante,de,ate",
        "since": "desde,a partir de",
        "after": "depois de,apos",
        "before": "antes de,antes do",
        "of": "de,do,da,o,a,os,as",
        "periods": "entre|e,e_o,e_a de,do,desde|a,ao,ate,ate_o",
        "asks": "a aconteceu de e escrevemos escrevi eu fez fiz fizemos foi ha houve na no nos novo o que se",
    },
    "it": {
        "month": "1:gennaio 2:febbraio 3:marzo 4:aprile 5:maggio 6:giugno 7:luglio 8:agosto 9:settembre 10:ottobre "
        "11:novembre 12:dicembre",
        "weekday": "0:lunedi 1:martedi 2:mercoledi 3:giovedi 4:venerdi 5:sabato 6:domenica",
        "season": "0:primavera 1:estate 2:autunno 3:inverno",
        "quarter": "1:t1 2:t2 3:t3 4:t4",
        "unit": f"{_MINUTE}minuto,minuti {_HOUR}ore {_DAY}giorno,giorni {_WEEKEND}fine settimana,weekend "
        f"{_WEEK}settimana,settimane {_MONTH}mese,mesi {_QUARTER}trimestre,trimestri {_YEAR}anno,anni",
        "day": "0:oggi,stamattina,stasera 1:ieri 2:altro ieri,avantieri",
        "last": "scorso,scorsa,scorsi,scorse,passato,passata,ultimo,ultima,ultimi,ultime",
        "this": "questo,questa",
        "part": "0:inizio 1:meta 2:fine",
        "ago": "1:fa",
        "number": "1:un,una,uno 2:due 3:tre 4:quattro 5:cinque 6:sei 7:sette 8:otto 9:nove 10:dieci 12:dodici "
        "15:quindici",
        "ordinal": "1:primo,prima 2:secondo,seconda 3:terzo,terza 4:quarto,quarta",
        "in": "in,nel,nell,nella,a,ad,di,del,durante,il,entro,fino a",
        "since": "dal,dall,dalla,a partire da",
        "weak since": "da",
        "after": "dopo,dopo il",
        "before": "prima di,prima del,prima dell",
        "of": "di,del,dell,della,il,lo,la,l,nel",
        "periods": "tra,fra|e,e_il da,dal|a,al,fino_a,fino_al",
        "asks": "abbiamo che cosa cos e fatto ha hanno ho io la mi ne noi nuovo scritto si successo sono stato",
        "companions": "che con da e fino gennaio febbraio aprile maggio giugno luglio settembre ottobre dicembre il la",
    },
    "nl": {
        "month": "1:januari 2:februari 3:maart 4:april 5:mei 6:juni 7:juli 8:augustus 9:september 10:oktober "
        "11:november 12:december",
        "weekday": "0:maandag 1:dinsdag 2:woensdag 3:donderdag 4:vrijdag 5:zaterdag 6:zondag",
        "season": "0:lente,voorjaar 1:zomer 2:herfst,najaar 3:winter",
        "quarter": _QUARTERS,
        "unit": f"{_MINUTE}minuut,minuten {_HOUR}uur,uren {_DAY}dag,dagen {_WEEKEND}weekend {_WEEK}week,weken "
        f"{_MONTH}maand,maanden {_QUARTER}kwartaal,kwartalen {_YEAR}jaar,jaren",
        "day": "0:vandaag,vanochtend,vanavond 1:gisteren,gisteravond 2:eergisteren",
        "last": "vorige,vorig,afgelopen,verleden,laatste",
        "this": "deze,dit",
        "part": "0:begin 1:medio,half 2:eind,einde",
        "ago": "1:geleden",
        "number": "1:een 2:twee 3:drie 4:vier 5:vijf 6:zes 7:zeven 8:acht 9:negen 10:tien 12:twaalf 14:veertien",
        "ordinal": "1:eerste 2:tweede 3:derde 4:vierde",
        "in": "in,op,tijdens,tot,van",
        "since": "sinds,vanaf",
        "weak after": "na",
        "before": "voor",
        "of": "van,in,de,het,van de,van het",
        "periods": "tussen|en van|tot,tot_en_met",
        "asks": "aan de deden deed er gebeurd gebeurde gedaan geschreven heb hebben heeft het ik is nieuw nieuws "
        "schreef wat we wij zijn",
        "companions": "de het een en ik we wij wat is van op met niet voor",
    },
    "sv": {
        "month": "1:januari 2:februari 4:april 5:maj 6:juni 7:juli 8:augusti 9:september 10:oktober 11:november "
        "12:december",
        "weak month": "3:mars",
        "weekday": "0:mandag,mandagen,mandags 1:tisdag,tisdagen,tisdags 2:onsdag,onsdagen,onsdags "
        "3:torsdag,torsdagen,torsdags 4:fredag,fredagen,fredags 5:lordag,lordagen,lordags 6:sondag,sondagen,sondags",
        "season": "0:vår,varen 1:sommar,sommaren,somras 2:höst,hosten,hostas 3:vinter,vintern,vintras",
        "quarter": _QUARTERS,
        "unit": f"{_MINUTE}minut,minuter {_HOUR}timme,timmar {_DAY}dag,dagar,dagarna {_WEEKEND}helg,helgen "
        f"{_WEEK}vecka,veckan,veckor,veckorna {_MONTH}manad,manaden,manader,manaderna {_QUARTER}kvartal,kvartalet "
        f"{_YEAR}ar,aret,aren",
        "back": f"{_LAST_YEAR}i fjol,fjol,ifjol",
        "day": "0:i dag,idag 1:i går,igår 2:i forrgar,forrgar",
        "last": "forra,forrige,senaste,sista",
        "this": "denna,detta,den har,det har",
        "part": "0:borjan av 1:mitten av 2:slutet av",
        "ago": "1:sedan",
        "number": "1:en,ett 2:tva 3:tre 4:fyra 5:fem 6:sex 7:sju 8:atta 9:nio 10:tio 12:tolv 14:fjorton",
        "ordinal": "1:forsta 2:andra 3:tredje 4:fjarde",
        "in": "i,pa,under,den,till,mellan,fran",
        "since": "sedan",
        "after": "efter",
        "before": "fore,innan",
        "of": "av,i,den,det",
        "periods": "mellan|och fran,sedan|till",
        "asks": "att det gjorde gjort har hande hant jag nytt skrev skrivit var vad vi",
    },
    "da": {
        "month": "1:januar 2:februar 3:marts 4:april 5:maj 6:juni 7:juli 8:august 9:september 10:oktober 11:november "
        "12:december",
        "weekday": "0:mandag,mandags 1:tirsdag,tirsdags 2:onsdag,onsdags 3:torsdag,torsdags 4:fredag,fredags "
        "5:lordag,lordags 6:sondag,sondags",
        "season": "0:forar,foraret 1:sommer,sommeren 2:efterar,efteraret 3:vinter,vinteren",
        "quarter": _QUARTERS,
        "unit": f"{_MINUTE}minut,minutter {_HOUR}timer {_DAY}dag,dage {_WEEKEND}weekend,weekenden {_WEEK}uge,ugen,uger "
        f"{_MONTH}maned,maneden,maneder {_QUARTER}kvartal,kvartalet {_YEAR}ar,aret",
        "back": f"{_LAST_YEAR}i fjor,fjor",
        "day": "0:i dag,idag 1:i går,igår 2:i forgars,forgars",
        "last": "sidste,forrige,seneste",
        "this": "denne,dette",
        "part": "0:begyndelsen af,starten af,primo 1:midten af,medio 2:slutningen af,ultimo",
        "ago": "1:siden",
        "number": "1:en,et 2:to 3:tre 4:fire 5:fem 6:seks 7:syv 8:otte 9:ni 10:ti 12:tolv 14:fjorten",
        "ordinal": "1:forste 2:anden,andet 3:tredje 4:fjerde",
        "in": "i,pa,under,den,til,mellem,mellom,fra",
        "since": "siden",
        "after": "efter",
        "before": "før,inden",
        "of": "af,i,den,det",
        "periods": "mellem|og fra,siden|til",
        "asks": "at det gjorde gjort har jeg lavede nyt sket skete skrev skrevet var vi hvad",
    },
    "nb": {
        "month": "1:januar 2:februar 4:april 5:mai 6:juni 7:juli 8:august 9:september 10:oktober 11:november "
        "12:desember",
        "weak month": "3:mars",
        "weekday": "0:mandag 1:tirsdag 2:onsdag 3:torsdag 4:fredag 5:lordag 6:sondag",
        "season": "0:vår,varen 1:sommer,sommeren 2:høst,hosten 3:vinter,vinteren",
        "quarter": _QUARTERS,
        "unit": f"{_MINUTE}minutt,minutter {_HOUR}timer {_DAY}dag,dager,dagene {_WEEKEND}helg,helgen "
        f"{_WEEK}uke,uken,uka,uker,ukene {_MONTH}maned,maneden,maneder,manedene {_QUARTER}kvartal,kvartalet "
        f"{_YEAR}ar,aret,arene",
        "back": f"{_LAST_YEAR}i fjor,fjor",
        "day": "0:i dag,idag 1:i går,igår 2:i forgars,forgars",
        "last": "forrige,sist,siste",
        "this": "denne,dette",
        "part": "0:begynnelsen av,starten av 1:midten av 2:slutten av",
        "ago": "1:siden",
        "number": "1:en,ei,ett,et 2:to 3:tre 4:fire 5:fem 6:seks 7:sju,syv 8:atte 9:ni 10:ti 12:tolv 14:fjorten",
        "ordinal": "1:forste 2:andre 3:tredje 4:fjerde",
        "in": "i,pa,under,den,til,mellem,mellom,fra",
        "since": "siden",
        "after": "etter",
        "before": "før,innen",
        "of": "av,i,den,det",
        "periods": "mellom|og fra,siden|til",
        "asks": "at det gjorde gjort har jeg nytt skjedde skjedd skrev skrevet var vi hva",
    },
    "pl": {
        "month": "1:styczen,stycznia,styczniu 2:luty,lutego,lutym 3:marzec,marcu 4:kwiecien,kwietnia,kwietniu "
        "5:maj,maju 6:czerwiec,czerwca,czerwcu 7:lipiec,lipca,lipcu 8:sierpien,sierpnia,sierpniu "
        "9:wrzesien,wrzesnia,wrzesniu 10:pazdziernik,pazdziernika,pazdzierniku 11:listopad,listopada,listopadzie "
        "12:grudzien,grudnia,grudniu",
        # Also a Spanish word and a name.
        "weak month": "3:marca 5:maja",
        "weekday": "0:poniedzialek,poniedzialku 1:wtorek,wtorku 2:sroda,srode,srody 3:czwartek,czwartku "
        "4:piatek,piatku 5:sobota,sobote,soboty 6:niedziela,niedziele,niedzieli",
        "season": "0:wiosna,wiosny,wiosne 1:lato,latem,lata,lecie 2:jesien,jesienia,jesieni 3:zima,zimy,zime",
        "quarter": _QUARTERS,
        "unit": f"{_MINUTE}minuta,minute,minuty,minut {_HOUR}godzina,godzine,godziny,godzin {_DAY}dzien,dni,dnia "
        f"{_WEEKEND}weekend {_WEEK}tydzien,tygodniu,tygodnia,tygodnie,tygodni "
        f"{_MONTH}miesiac,miesiacu,miesiaca,miesiace,miesiecy {_QUARTER}kwartal,kwartale,kwartalu "
        f"{_YEAR}rok,roku,lata,lat",
        "day": "0:dzis,dzisiaj 1:wczoraj 2:przedwczoraj",
        "last": "zeszly,zeszla,zeszle,zeszlym,zeszlego,zeszlej,ubiegly,ubiegla,ubieglym,ubieglego,ubieglej,ostatni,"
        "ostatnia,ostatnie,ostatnim,ostatniego,ostatniej,ostatnich,poprzedni,poprzednim,poprzedniego",
        "this": "ten,ta,tym,tego,tej,biezacym,biezacego",
        "part": "0:poczatek,poczatku 1:polowa,polowie 2:koniec,koncu",
        "ago": "1:temu",
        "number": "1:jeden,jedna 2:dwa,dwie 3:trzy 4:cztery 5:piec 6:szesc 7:siedem 8:osiem 9:dziewiec 10:dziesiec "
        "12:dwanascie 14:czternascie",
        "ordinal": "1:pierwszy,pierwszym,pierwszego 2:drugi,drugim,drugiego 3:trzeci,trzecim,trzeciego "
        "4:czwarty,czwartym,czwartego",
        "in": "w,we,na,do",
        "since": "od",
        "after": "po",
        "before": "przed",
        "of": "w,we,roku",
        "periods": "miedzy|a od|do",
        "asks": "bylo co ja mialo miejsce my nowego pisalam pisalem robilam robilem robilismy sie stalo w wydarzylo "
        "zrobilam zrobilem",
        "companions": "co do i jest na nie od sie to w z",
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
        f"{_QUARTER}квартал,квартала,квартале {_YEAR}год,года,году,лет",
        "day": "0:сегодня 1:вчера 2:позавчера",
        "last": "прошлый,прошлая,прошлое,прошлые,прошлой,прошлую,прошлом,прошлого,прошлым,прошлых,последний,последняя,"
        "последнюю,последние,последних,последней",
        "this": "этот,эта,это,эти,этой,эту,этом,этого,этим",
        "part": "0:начале,начало 1:середине,середина 2:конце,конец",
        "ago": "1:назад,тому назад",
        "number": "1:один,одну,одна 2:два,две 3:три 4:четыре 5:пять 6:шесть 7:семь 8:восемь 9:девять 10:десять "
        "12:двенадцать",
        "ordinal": "1:первый,первая,первую,первой,первом 2:второй,вторая,вторую,втором 3:третий,третья,третью,третьей,"
        "третьем 4:четвертый,четвертая,четвертую,четвертом",
        "in": "в,во,за,на,к",
        "since": "с,со,начиная с",
        "after": "после",
        "before": "до",
        "of": "года,г,в,на,за",
        "periods": "между|и с,со|до,по",
        "asks": "было в делал делала делали и мы на написал написала нового писал писала произошло сделал сделала "
        "сделали случилось у что я",
    },
    "tr": {
        "month": "1:ocakta,ocaktan,ocak ayinda 2:subat,subatta,subattan 3:martta,marttan,mart ayinda "
        "4:nisan,nisanda,nisandan 5:mayis,mayista,mayistan 6:haziran,haziranda,hazirandan "
        "7:temmuz,temmuzda,temmuzdan 8:agustos,agustosta,agustostan 9:eylul,eylulde,eylulden "
        "10:ekimde,ekimden,ekim ayinda 11:kasimda,kasimdan,kasim ayinda 12:aralikta,araliktan,aralik ayinda",
        "weak month": "1:ocak 3:mart 10:ekim 11:kasim 12:aralik",
        "weekday": "0:pazartesi 1:sali gunu 2:carsamba 3:persembe 4:cuma 5:cumartesi 6:pazar gunu",
        "weak weekday": "1:sali 6:pazar",
        "season": "0:ilkbahar,ilkbaharinda 1:yaz,yazi,yazinda,yazin 2:sonbahar,sonbaharinda 3:kis,kisi,kisinda,kisin",
        "unit": f"{_MINUTE}dakika {_HOUR}saat {_DAY}gün,gunde {_WEEKEND}hafta sonu {_WEEK}hafta,haftada "
        f"{_MONTH}ay,ayda {_QUARTER}ceyrek {_YEAR}yil,yilin,yilda,sene",
        "day": "0:bugun 1:dün 2:evvelsi gün,onceki gün",
        "last": "gecen,son,onceki",
        "this": "bu",
        "ago": "1:once",
        "number": "1:bir 2:iki 3:uc 4:dort 5:bes 6:alti 7:yedi 8:sekiz 9:dokuz 10:on",
        "ordinal": "1:birinci,ilk 2:ikinci 3:ucuncu 4:dorduncu",
        "since": "1:beri,dan beri,den beri,tan beri,ten beri",
        "after": "1:sonra,dan sonra,den sonra,tan sonra,ten sonra",
        "before": "1:dan once,den once,tan once,ten once",
        "of": "yilinin,nin,nun",
        "asks": "ben biz ne neler oldu var vardi yaptik yaptim yazdim",
        "companions": "ne ve bir bu ile icin mi",
    },
    "ar": {
        "month": "1:يناير,كانون الثاني 2:فبراير,شباط 3:اذار 4:ابريل,نيسان 5:مايو,ايار 6:يونيو,حزيران 7:يوليو,تموز "
        "8:اغسطس 9:سبتمبر,ايلول 10:اكتوبر,تشرين الاول 11:نوفمبر,تشرين الثاني 12:ديسمبر,كانون الاول",
        # Also "practised" and "father".
        "weak month": "3:مارس 8:اب",
        "weekday": "0:الاثنين 1:الثلاثاء 2:الاربعاء 3:الخميس 4:الجمعه 5:السبت 6:الاحد",
        "season": "0:ربيع,الربيع 1:صيف,الصيف 2:خريف,الخريف 3:شتاء,الشتاء",
        "unit": f"{_MINUTE}دقيقه,دقائق {_HOUR}ساعه,ساعات {_DAY}يوم,يوما,ايام {_TWO_DAYS}يومين "
        f"{_WEEKEND}نهايه الاسبوع {_WEEK}اسبوع,الاسبوع,اسابيع {_TWO_WEEKS}اسبوعين {_MONTH}شهر,الشهر,اشهر,شهور "
        f"{_TWO_MONTHS}شهرين {_QUARTER}ربع,الربع {_YEAR}سنه,السنه,عام,العام,سنوات,اعوام,سنين {_TWO_YEARS}سنتين,عامين",
        "day": "0:اليوم 1:امس,البارحه 2:اول امس",
        "last": "الماضي,الماضيه,المنصرم,الفائت,السابق,الاخير,الاخيره,اخر",
        "this": "هذا,هذه",
        "part": "0:اوائل,بدايه,مطلع 1:منتصف,اواسط 2:اواخر,نهايه",
        "ago": "0:قبل,منذ",
        "number": "1:واحد,واحده 2:اثنين 3:ثلاث,ثلاثه 4:اربع,اربعه 5:خمس,خمسه 6:ست,سته 7:سبع,سبعه 8:ثماني,ثمانيه "
        "9:تسع,تسعه 10:عشر,عشره",
        "ordinal": "1:الاول,اول 2:الثاني,ثاني 3:الثالث,ثالث 4:الرابع,رابع",
        "in": "في,خلال,شهر",
        "since": "منذ",
        "after": "بعد",
        "before": "قبل",
        "of": "من,عام,سنه,شهر,من عام",
        "asks": "انا حدث الذي حصل في فعلت فعلنا كان كتبت كتبنا ما ماذا نحن هو",
    },
    "hi": {
        "month": "1:जनवरी 2:फरवरी,फ़रवरी 3:मार्च 4:अप्रैल 5:मई 6:जून 7:जुलाई 8:अगस्त 9:सितंबर,सितम्बर 10:अक्टूबर,अक्तूबर "
        "11:नवंबर,नवम्बर 12:दिसंबर,दिसम्बर",
        "weekday": "0:सोमवार 1:मंगलवार 2:बुधवार 3:गुरुवार,बृहस्पतिवार 4:शुक्रवार 5:शनिवार 6:रविवार,इतवार",
        "season": "0:वसंत 1:गर्मी,गर्मियों 2:शरद,पतझड़ 3:सर्दी,सर्दियों",
        "unit": f"{_MINUTE}मिनट {_HOUR}घंटा,घंटे {_DAY}दिन,दिनों {_WEEKEND}सप्ताहांत {_WEEK}हफ्ता,हफ्ते,हफ़्ते,हफ्तों,सप्ताह "
        f"{_MONTH}महीना,महीने,महीनों,माह {_QUARTER}तिमाही {_YEAR}साल,सालों,वर्ष",
        "day": "0:आज 1:कल 2:परसों",
        "last": "पिछले,पिछला,पिछली,बीते,गत",
        "this": "इस",
        "ago": "1:पहले",
        "number": "1:एक 2:दो 3:तीन 4:चार 5:पांच,पाँच 6:छह,छः 7:सात 8:आठ 9:नौ 10:दस 12:बारह",
        "ordinal": "1:पहली,पहला 2:दूसरी,दूसरा 3:तीसरी,तीसरा 4:चौथी,चौथा",
        "since": "1:से",
        "after": "1:के बाद",
        "before": "1:से पहले,के पहले",
        "of": "की,के,का",
        "asks": "किया क्या ने मैंने हमने में लिखा हुआ था",
    },
}  # fmt: skip
