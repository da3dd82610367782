"""`GET /api/v1/explain/{kind}/{id}`: why it is as it is, for people's commands and for programs."""

from runyard.http.messages import Pairs, Request, Response, json_response
from runyard.http.problems import Problem, problem
from runyard.http.routes import Route
from runyard.web.explain.explainer import Explainer
from runyard.web.explain.values import SUBJECTS, Explanation, Unknown
from runyard.wire import names

PATH = "/api/v1/explain/{kind}/{id}"


class ExplainApi:
    """The route."""

    def __init__(self, explainer: Explainer, *, headers: Pairs = ()) -> None:
        self._explainer = explainer
        self._headers = headers

    def routes(self) -> tuple[Route, ...]:
        """One question for each kind of thing."""
        return (
            Route(
                "GET",
                PATH,
                self._explain,
                summary="Why a job waits, or a Pod, a pool or a runner is as it is: the binding constraint with its"
                " numbers, and the chain that leads to it.",
                answers={
                    200: ("The explanation.", Explanation),
                    404: ("There is no such thing; says what was searched.", Problem),
                },
                secured=True,
            ),
        )

    async def _explain(self, _: Request, kind: str, id: str) -> Response:
        subject = next((each for each in SUBJECTS if each == kind), None)
        if subject is None:
            known = ", ".join(SUBJECTS)
            return problem(404, f"a {kind} cannot be explained", fix=f"ask about one of: {known}")
        found = await self._explainer.explain(subject, id)
        if isinstance(found, Unknown):
            return problem(
                404,
                f"no {subject} is known as {id}",
                reason=f"searched: {'; '.join(found.searched)}",
                fix=_FIX[subject],
            )
        return json_response(200, found, self._headers)


_FIX = {
    "job": "ask with the number that GitHub gave the job (not the run): see the end of the job's address",
    "pod": f"ask with a Pod's name or uid: kubectl get pods -l {names.RUNNER}=true",
    "pool": "ask with a RunnerPool's name: kubectl get runnerpools",
    "runner": "ask with the runner's name or number as GitHub shows it, or with its Pod's name",
}
