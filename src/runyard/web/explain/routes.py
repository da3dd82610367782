"""Serves explanations as `GET /api/v1/explain/{kind}/{id}`."""

from runyard.http.messages import Pairs, Request, Response, json_response
from runyard.http.problems import Problem, problem
from runyard.http.routes import Route
from runyard.web.explain.explainer import Explainer
from runyard.web.explain.values import SUBJECTS, Unknown
from runyard.web.explain.views import ExplanationView, view
from runyard.wire import names
from runyard.wire.problem_codes import ProblemCode

PATH = "/api/v1/explain/{kind}/{id}"


class ExplainApi:
    """The route of explanations."""

    def __init__(self, explainer: Explainer, *, headers: Pairs = ()) -> None:
        self._explainer = explainer
        self._headers = headers

    def routes(self) -> tuple[Route, ...]:
        """Return the route."""
        return (
            Route(
                "GET",
                PATH,
                self._explain,
                summary="Why a job waits, or why a Pod, a pool or a runner is in its state: the binding constraint with"
                " its numbers, and the chain of causes.",
                answers={
                    200: ("The explanation.", ExplanationView),
                    404: (
                        "The object does not exist; the reason lists what was searched.",
                        Problem,
                    ),
                },
                secured=True,
            ),
        )

    async def _explain(self, _: Request, kind: str, id: str) -> Response:
        subject = next((each for each in SUBJECTS if each == kind), None)
        if subject is None:
            known = ", ".join(SUBJECTS)
            return problem(404, ProblemCode.KIND_UNEXPLAINED, kind=kind, fix=f"use one of: {known}")
        found = await self._explainer.explain(subject, id)
        if isinstance(found, Unknown):
            return problem(
                404,
                ProblemCode.SUBJECT_UNKNOWN,
                kind=subject,
                id=id,
                reason=f"searched: {'; '.join(found.searched)}",
                fix=_FIX[subject],
            )
        return json_response(200, view(found), self._headers)


_FIX = {
    "job": "use the job's number at GitHub (not the run's): the last part of the job's URL",
    "pod": f"use a Pod's name or uid: kubectl get pods -l {names.RUNNER}=true",
    "pool": "use a RunnerPool's name: kubectl get runnerpools",
    "runner": "use the runner's name or id at GitHub, or its Pod's name",
}
